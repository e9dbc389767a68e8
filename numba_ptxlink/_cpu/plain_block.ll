; The executor of a kernel that never suspends: run the threads of a block one after the other.

define i32 @"block.$name"(ptr %ctx, i32 %resume_mode) {
entry:
  %region_cache.at = getelementptr i8, ptr %ctx, i64 $context.region_cache
  %region_cache = load ptr, ptr %region_cache.at, !tbaa !1
  %params.at = getelementptr i8, ptr %ctx, i64 $context.params
  %params = load ptr, ptr %params.at, !tbaa !1
  %local.at = getelementptr i8, ptr %ctx, i64 $context.local_base
  %local = load ptr, ptr %local.at, !tbaa !1
  %size.at = getelementptr i8, ptr %ctx, i64 $context.local_size
  %size = load i64, ptr %size.at, !tbaa !1
  %limit = getelementptr i8, ptr %local, i64 %size
  %current.at = getelementptr i8, ptr %ctx, i64 $context.current_thread
  %fault_record.at = getelementptr i8, ptr %ctx, i64 $context.fault_record
  %fault_record = load ptr, ptr %fault_record.at, !tbaa !1
  %nx.at = getelementptr i8, ptr %ctx, i64 $context.ntid
  %nx = load i32, ptr %nx.at, !tbaa !1
  %ny.at = getelementptr i32, ptr %nx.at, i64 1
  %ny = load i32, ptr %ny.at, !tbaa !1
  %nz.at = getelementptr i32, ptr %nx.at, i64 2
  %nz = load i32, ptr %nz.at, !tbaa !1
  br label %planes
planes:
  %z = phi i32 [0, %entry], [%z.next, %plane]
  %thread.z = phi i32 [0, %entry], [%thread.y, %plane]
  %z.more = icmp ult i32 %z, %nz
  br i1 %z.more, label %rows, label %done
rows:
  %y = phi i32 [0, %planes], [%y.next, %row]
  %thread.y = phi i32 [%thread.z, %planes], [%thread.x, %row]
  %y.more = icmp ult i32 %y, %ny
  br i1 %y.more, label %columns, label %plane
columns:
  %x = phi i32 [0, %rows], [%x.next, %next]
  %thread.x = phi i32 [%thread.y, %rows], [%thread.next, %next]
  %x.more = icmp ult i32 %x, %nx
  br i1 %x.more, label %run, label %row
run:
  store i32 %thread.x, ptr %current.at, !tbaa !1
  %outcome = call i8 @"f.$name"($arguments, ptr %params, ptr null)
  %exited = icmp ne i8 %outcome, 0
  br i1 %exited, label %check, label %next
check:
  %kind = load i64, ptr %fault_record, !tbaa !1
  %faulted = icmp ne i64 %kind, 0
  br i1 %faulted, label %fault, label %next
next:
  %x.next = add i32 %x, 1
  %thread.next = add i32 %thread.x, 1
  br label %columns
row:
  %y.next = add i32 %y, 1
  br label %rows
plane:
  %z.next = add i32 %z, 1
  br label %planes
fault:
  ret i32 $status.faulted
done:
  ret i32 $status.finished
}
