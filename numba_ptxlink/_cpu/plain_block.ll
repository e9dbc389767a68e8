; The executor of a kernel that never suspends: run the threads of a block one after the other, x fastest, then y and z.
; %thread is the linear index. The kernel's function returns 0 (%end_code) unless the thread exits early, perhaps by a
; fault. A fault ends the block. %resume_mode is for kernels that suspend, and ignored here. runtime.block_entry
; replaces the names that begin with a dollar sign.

define i32 @"block.$name"(ptr %ctx, i32 %resume_mode) {
entry:
  %region_cache.at = getelementptr i8, ptr %ctx, i64 $context.region_cache
  %region_cache = load ptr, ptr %region_cache.at, !tbaa !1
  %params.at = getelementptr i8, ptr %ctx, i64 $context.params
  %params = load ptr, ptr %params.at, !tbaa !1
  %local.at = getelementptr i8, ptr %ctx, i64 $context.local_base
  %local = load ptr, ptr %local.at, !tbaa !1
  %local_size.at = getelementptr i8, ptr %ctx, i64 $context.local_size
  %local_size = load i64, ptr %local_size.at, !tbaa !1
  %limit = getelementptr i8, ptr %local, i64 %local_size
  %current_thread.at = getelementptr i8, ptr %ctx, i64 $context.current_thread
  %fault_record.at = getelementptr i8, ptr %ctx, i64 $context.fault_record
  %fault_record = load ptr, ptr %fault_record.at, !tbaa !1
  %width.at = getelementptr i8, ptr %ctx, i64 $context.ntid
  %width = load i32, ptr %width.at, !tbaa !1
  %height.at = getelementptr i32, ptr %width.at, i64 1
  %height = load i32, ptr %height.at, !tbaa !1
  %depth.at = getelementptr i32, ptr %width.at, i64 2
  %depth = load i32, ptr %depth.at, !tbaa !1
  br label %plane.begin
plane.begin:
  %z = phi i32 [0, %entry], [%z.next, %plane.end]
  %plane.thread = phi i32 [0, %entry], [%row.thread, %plane.end]
  %z.in_block = icmp ult i32 %z, %depth
  br i1 %z.in_block, label %row.begin, label %done
row.begin:
  %y = phi i32 [0, %plane.begin], [%y.next, %row.end]
  %row.thread = phi i32 [%plane.thread, %plane.begin], [%thread, %row.end]
  %y.in_block = icmp ult i32 %y, %height
  br i1 %y.in_block, label %column.begin, label %plane.end
column.begin:
  %x = phi i32 [0, %row.begin], [%x.next, %column.end]
  %thread = phi i32 [%row.thread, %row.begin], [%thread.next, %column.end]
  %x.in_block = icmp ult i32 %x, %width
  br i1 %x.in_block, label %run, label %row.end
run:
  store i32 %thread, ptr %current_thread.at, !tbaa !1
  %end_code = call i8 @"f.$name"($arguments, ptr %params, ptr null)
  %has_ended = icmp ne i8 %end_code, 0
  br i1 %has_ended, label %check, label %column.end
check:
  %kind = load i64, ptr %fault_record, !tbaa !1
  %has_fault = icmp ne i64 %kind, 0
  br i1 %has_fault, label %fault, label %column.end
column.end:
  %x.next = add i32 %x, 1
  %thread.next = add i32 %thread, 1
  br label %column.begin
row.end:
  %y.next = add i32 %y, 1
  br label %row.begin
plane.end:
  %z.next = add i32 %z, 1
  br label %plane.begin
fault:
  ret i32 $status.faulted
done:
  ret i32 $status.finished
}
