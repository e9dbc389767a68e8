; The executor of a device function: call it for the elements %first to %end of arrays.

define i32 @"elementwise.$name"(ptr %ctx, ptr %arrays, i64 %first, i64 %end) {
entry:
  %region_cache.at = getelementptr i8, ptr %ctx, i64 $context.region_cache
  %region_cache = load ptr, ptr %region_cache.at
  %local.at = getelementptr i8, ptr %ctx, i64 $context.local_base
  %local = load ptr, ptr %local.at
  %size.at = getelementptr i8, ptr %ctx, i64 $context.local_size
  %size = load i64, ptr %size.at
  %limit = getelementptr i8, ptr %local, i64 %size
  %current.at = getelementptr i8, ptr %ctx, i64 $context.current_thread
  %fault_record.at = getelementptr i8, ptr %ctx, i64 $context.fault_record
  %fault_record = load ptr, ptr %fault_record.at
$arrays
  br label %test
test:
  %number = phi i64 [%first, %entry], [%next, %store]
  %more = icmp ult i64 %number, %end
  br i1 %more, label %run, label %done
run:
  %current = trunc i64 %number to i32
  store i32 %current, ptr %current.at
$elements
  %outcome = call i8 @"f.$name"($arguments, ptr null, ptr null$pointers)
  %exited = icmp ne i8 %outcome, 0
  br i1 %exited, label %check, label %store
check:
  %kind = load i64, ptr %fault_record
  %faulted = icmp ne i64 %kind, 0
  br i1 %faulted, label %fault, label %store
store:
  %next = add i64 %number, 1
  br label %test
fault:
  ret i32 $status.faulted
done:
  ret i32 $status.finished
}
