; The executor of a kernel that suspends: each thread is a coroutine, which the scheduler of runtime.ll resumes. First
; start the threads of the block, or release those that wait at the grid barrier, as %resume_mode says. The third mode,
; for a block that has yielded to other blocks, only runs the scheduler. runtime.block_entry replaces the names that
; begin with a dollar sign.

define i32 @"block.$name"(ptr %ctx, i32 %resume_mode) {
  switch i32 %resume_mode, label %schedule [
    i32 $resume.start, label %start
    i32 $resume.grid_barrier, label %release
  ]
start:
  %started = call i32 @ptxlink.start_threads(ptr %ctx, ptr @"ramp.$name")
  br label %check
release:
  %released = call i32 @ptxlink.resume_in_state(ptr %ctx, i32 $state.grid_barrier)
  br label %check
check:
  %status = phi i32 [%started, %start], [%released, %release]
  %is_faulted = icmp eq i32 %status, $status.faulted
  br i1 %is_faulted, label %fault, label %schedule
fault:
  ret i32 $status.faulted
schedule:
  %result = call i32 @ptxlink.schedule(ptr %ctx)
  ret i32 %result
}
