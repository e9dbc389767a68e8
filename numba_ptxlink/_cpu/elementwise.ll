; The executor of a device function: call it for the elements of arrays from the index %begin up to %end, exclusive.
; %arrays has the address and the stride in bytes of each array. The function returns 0 (%end_code) unless the thread
; exits early, perhaps by a fault. A fault ends the loop. runtime.elementwise_entry replaces the names that begin with a
; dollar sign.

define i32 @"elementwise.$name"(ptr %ctx, ptr %arrays, i64 %begin, i64 %end) {
entry:
  %region_cache.at = getelementptr i8, ptr %ctx, i64 $context.region_cache
  %region_cache = load ptr, ptr %region_cache.at
  %local.at = getelementptr i8, ptr %ctx, i64 $context.local_base
  %local = load ptr, ptr %local.at
  %local_size.at = getelementptr i8, ptr %ctx, i64 $context.local_size
  %local_size = load i64, ptr %local_size.at
  %limit = getelementptr i8, ptr %local, i64 %local_size
  %current_thread.at = getelementptr i8, ptr %ctx, i64 $context.current_thread
  %fault_record.at = getelementptr i8, ptr %ctx, i64 $context.fault_record
  %fault_record = load ptr, ptr %fault_record.at
$arrays
  br label %loop
loop:
  %index = phi i64 [%begin, %entry], [%next, %next_element]
  %has_more = icmp ult i64 %index, %end
  br i1 %has_more, label %run, label %done
run:
  %thread = trunc i64 %index to i32
  store i32 %thread, ptr %current_thread.at
$elements
  %end_code = call i8 @"f.$name"($arguments, ptr null, ptr null$pointers)
  %has_ended = icmp ne i8 %end_code, 0
  br i1 %has_ended, label %check, label %next_element
check:
  %kind = load i64, ptr %fault_record
  %has_fault = icmp ne i64 %kind, 0
  br i1 %has_fault, label %fault, label %next_element
next_element:
  %next = add i64 %index, 1
  br label %loop
fault:
  ret i32 $status.faulted
done:
  ret i32 $status.finished
}
