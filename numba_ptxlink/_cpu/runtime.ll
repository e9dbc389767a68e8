; Functions that all programs share, compiled once: faults, the search for a region, step limits, the scheduler of
; suspended threads, and the functions that Python calls.
;
; runtime.py replaces names such as $context.params: by the offset in bytes of a field of BlockContext ($context),
; ThreadRecord ($thread) or FaultRecord ($fault_record), or by the value of a member of ThreadState ($state),
; Fault ($fault), BlockStatus ($status) or Resume ($resume). A value %x.at is the address of %x. Loops over the lanes of
; a mask take its lowest bit, and clear it by `and` with the mask minus one.

declare i32 @clock_gettime(i32, ptr)

; ---- Faults. Record only the first fault of a worker: later ones may be its consequences. %site is the number of the
; statement.

define void @ptxlink.record_fault(ptr %ctx, i64 %kind, i64 %site, i64 %address, i64 %size) noinline cold {
  %record.at = getelementptr i8, ptr %ctx, i64 $context.fault_record
  %record = load ptr, ptr %record.at
  %kind.at = getelementptr i8, ptr %record, i64 $fault_record.kind
  %recorded.kind = load i64, ptr %kind.at
  %is_first = icmp eq i64 %recorded.kind, 0
  br i1 %is_first, label %store, label %done
store:
  %site.at = getelementptr i8, ptr %record, i64 $fault_record.fault_site
  %address.at = getelementptr i8, ptr %record, i64 $fault_record.address
  %size.at = getelementptr i8, ptr %record, i64 $fault_record.size
  store i64 %kind, ptr %kind.at
  store i64 %site, ptr %site.at
  store i64 %address, ptr %address.at
  store i64 %size, ptr %size.at
  br label %done
done:
  ret void
}

define internal i1 @has_fault(ptr %ctx) {
  %record.at = getelementptr i8, ptr %ctx, i64 $context.fault_record
  %record = load ptr, ptr %record.at
  %kind.at = getelementptr i8, ptr %record, i64 $fault_record.kind
  %kind = load i64, ptr %kind.at
  %has_fault = icmp ne i64 %kind, 0
  ret i1 %has_fault
}

; ---- Regions. Find the region that contains an access. Store its start and %offset_limit in %cached, so that the next
; access by the same instruction needs no search: an access of %size bytes, a power of two, fits at offsets below the
; limit. If no region contains the access, or the access is misaligned or forbidden, record a fault and return false. In
; the table of regions, the writable ones come first. In local memory, a thread may access only its own part.

define i1 @ptxlink.find_region(ptr %ctx, ptr %cached, i64 %address, i64 %size, i64 %site, i1 %writes) noinline cold {
entry:
  %mask = sub i64 %size, 1
  %remainder = and i64 %address, %mask
  %is_misaligned = icmp ne i64 %remainder, 0
  br i1 %is_misaligned, label %fault, label %search
search:
  %regions.at = getelementptr i8, ptr %ctx, i64 $context.regions
  %regions = load ptr, ptr %regions.at
  %count.at = getelementptr i8, ptr %ctx, i64 $context.region_count
  %count = load i64, ptr %count.at
  br label %scan
scan:
  %index = phi i64 [0, %search], [%next, %continue]
  %has_more = icmp ult i64 %index, %count
  br i1 %has_more, label %compare, label %fault
compare:
  %start.at = getelementptr [2 x i64], ptr %regions, i64 %index, i64 0
  %end.at = getelementptr [2 x i64], ptr %regions, i64 %index, i64 1
  %start = load i64, ptr %start.at
  %end = load i64, ptr %end.at
  %region.size = sub i64 %end, %start
  %is_large_enough = icmp uge i64 %region.size, %size
  %max_offset = sub i64 %region.size, %size
  %offset = sub i64 %address, %start
  %is_inside = icmp ule i64 %offset, %max_offset
  %contains_access = and i1 %is_large_enough, %is_inside
  br i1 %contains_access, label %found, label %continue
continue:
  %next = add i64 %index, 1
  br label %scan
found:
  %writable_count.at = getelementptr i8, ptr %ctx, i64 $context.writable_count
  %writable_count = load i64, ptr %writable_count.at
  %is_read_only = icmp uge i64 %index, %writable_count
  %is_forbidden = and i1 %writes, %is_read_only
  br i1 %is_forbidden, label %fault, label %writable
writable:
  %local_base.at = getelementptr i8, ptr %ctx, i64 $context.local_base
  %local_base = load i64, ptr %local_base.at
  %is_local = icmp eq i64 %start, %local_base
  br i1 %is_local, label %own, label %allowed
own:
  %thread.at = getelementptr i8, ptr %ctx, i64 $context.current_thread
  %thread = load i32, ptr %thread.at
  %own.pointer = call ptr @local_memory(ptr %ctx, i32 %thread)
  %own.start = ptrtoint ptr %own.pointer to i64
  %own.size.at = getelementptr i8, ptr %ctx, i64 $context.local_size
  %own.size = load i64, ptr %own.size.at
  %own.is_large_enough = icmp uge i64 %own.size, %size
  %own.max_offset = sub i64 %own.size, %size
  %own.offset = sub i64 %address, %own.start
  %own.is_inside = icmp ule i64 %own.offset, %own.max_offset
  %own.contains_access = and i1 %own.is_large_enough, %own.is_inside
  br i1 %own.contains_access, label %allowed, label %fault
allowed:
  %allowed.start = phi i64 [%start, %writable], [%own.start, %own]
  %allowed.max_offset = phi i64 [%max_offset, %writable], [%own.max_offset, %own]
  %cached.offset_limit.at = getelementptr i64, ptr %cached, i64 1
  %offset_limit = add i64 %allowed.max_offset, 1
  store i64 %allowed.start, ptr %cached
  store i64 %offset_limit, ptr %cached.offset_limit.at
  ret i1 true
fault:
  %kind = phi i64 [$fault.misaligned, %entry], [$fault.access, %scan], [$fault.read_only, %found], [$fault.access, %own]
  call void @ptxlink.record_fault(ptr %ctx, i64 %kind, i64 %site, i64 %address, i64 %size)
  ret i1 false
}

; Return the local memory of a thread. Threads that never suspend share one part.
define internal ptr @local_memory(ptr %ctx, i32 %thread) {
  %base.at = getelementptr i8, ptr %ctx, i64 $context.local_base
  %base = load ptr, ptr %base.at
  %stride.at = getelementptr i8, ptr %ctx, i64 $context.local_stride
  %stride = load i64, ptr %stride.at
  %total_size.at = getelementptr i8, ptr %ctx, i64 $context.local_total_size
  %total_size = load i64, ptr %total_size.at
  %thread.wide = zext i32 %thread to i64
  %distance = mul i64 %thread.wide, %stride
  %has_own = icmp ult i64 %distance, %total_size
  %offset = select i1 %has_own, i64 %distance, i64 0
  %result = getelementptr i8, ptr %base, i64 %offset
  ret ptr %result
}

; ---- Release Python's global interpreter lock while generated code runs, so that other threads of Python run.

define internal void @release_gil(ptr %ctx) {
  %save.at = getelementptr i8, ptr %ctx, i64 $context.save_thread
  %save = load ptr, ptr %save.at
  %thread = call ptr %save()
  %thread.at = getelementptr i8, ptr %ctx, i64 $context.python_thread
  store ptr %thread, ptr %thread.at
  ret void
}

define internal void @acquire_gil(ptr %ctx) {
  %restore.at = getelementptr i8, ptr %ctx, i64 $context.restore_thread
  %restore = load ptr, ptr %restore.at
  %thread.at = getelementptr i8, ptr %ctx, i64 $context.python_thread
  %thread = load ptr, ptr %thread.at
  call void %restore(ptr %thread)
  ret void
}

; ---- Run Python's pending signal handlers; return whether one raised an exception, as for Ctrl-C. In a thread of
; parallel.py, the function checks for an exception in another thread instead.

define internal i1 @check_signals(ptr %ctx) noinline cold {
  %check.at = getelementptr i8, ptr %ctx, i64 $context.check_signals
  %check = load ptr, ptr %check.at
  call void @acquire_gil(ptr %ctx)
  %result = call i32 %check()
  call void @release_gil(ptr %ctx)
  %is_interrupted = icmp ne i32 %result, 0
  ret i1 %is_interrupted
}

; Return how many back edges a loop may take until it has to call this function again: at most %max_steps, and no more
; than the thread's remaining steps at %steps.at, from which the number is subtracted. Return 0 if the thread has to
; end, after recording a fault.
define i32 @ptxlink.check_step_limit(ptr %ctx, ptr %steps.at, i64 %site, i32 %max_steps) noinline cold {
entry:
  %steps = load i64, ptr %steps.at
  %is_exhausted = icmp sle i64 %steps, 0
  br i1 %is_exhausted, label %fault, label %poll
poll:
  %is_interrupted = call i1 @check_signals(ptr %ctx)
  br i1 %is_interrupted, label %fault, label %grant
grant:
  %max_steps.wide = zext i32 %max_steps to i64
  %granted = call i64 @llvm.smin.i64(i64 %steps, i64 %max_steps.wide)
  %steps.left = sub i64 %steps, %granted
  store i64 %steps.left, ptr %steps.at
  %result = trunc i64 %granted to i32
  ret i32 %result
fault:
  %kind = phi i64 [$fault.step_limit, %entry], [$fault.interrupted, %poll]
  call void @ptxlink.record_fault(ptr %ctx, i64 %kind, i64 %site, i64 0, i64 0)
  ret i32 0
}

; ---- Call printf.print_formatted; return its result, -1 if it raised an exception. Python raises the exception when
; the function that it called returns.

; The format by which CPython's `PyObject_CallFunction` takes two integers of 64 bits.
@two_integers = internal constant [3 x i8] c"KK\00"

define i32 @ptxlink.print(ptr %ctx, i64 %template, i64 %arguments) {
entry:
  %print.at = getelementptr i8, ptr %ctx, i64 $context.print_function
  %call_object.at = getelementptr i8, ptr %ctx, i64 $context.call_object
  %to_long.at = getelementptr i8, ptr %ctx, i64 $context.to_long
  %decref.at = getelementptr i8, ptr %ctx, i64 $context.decref
  %print = load ptr, ptr %print.at
  %call_object = load ptr, ptr %call_object.at
  %to_long = load ptr, ptr %to_long.at
  %decref = load ptr, ptr %decref.at
  call void @acquire_gil(ptr %ctx)
  %object = call ptr (ptr, ptr, ...) %call_object(ptr %print, ptr @two_integers, i64 %template, i64 %arguments)
  %is_null = icmp eq ptr %object, null
  br i1 %is_null, label %done, label %convert
convert:
  %count.wide = call i64 %to_long(ptr %object)
  %count = trunc i64 %count.wide to i32
  call void %decref(ptr %object)
  br label %done
done:
  %result = phi i32 [-1, %entry], [%count, %convert]
  call void @release_gil(ptr %ctx)
  ret i32 %result
}

; ---- Nanoseconds since 1970: the clock 0 is CLOCK_REALTIME.

define i64 @ptxlink.time() {
  %time = alloca [2 x i64]
  %unused = call i32 @clock_gettime(i32 0, ptr %time)
  %seconds = load i64, ptr %time
  %nanoseconds.at = getelementptr [2 x i64], ptr %time, i64 0, i64 1
  %nanoseconds = load i64, ptr %nanoseconds.at
  %scaled = mul i64 %seconds, 1000000000
  %result = add i64 %scaled, %nanoseconds
  ret i64 %result
}

; ---- The heap of device code: allocations follow each other, and their memory is used again when all are freed.
;
; %heap has three words: the state, the size, and the address of the memory. The state has the offset of the next
; allocation in its lower 40 bits, and the number of live allocations above; 1099511627776 is 2**40. Each allocation
; begins behind 16 free bytes, as on a GPU: code of `new T[n]` writes n to the 8 bytes before the address that `malloc`
; returned. Its size with these is rounded up to a multiple of 16. If there is no room, return null.
define i64 @ptxlink.allocate(ptr %ctx, i64 %bytes) {
entry:
  %heap.at = getelementptr i8, ptr %ctx, i64 $context.heap
  %heap = load ptr, ptr %heap.at
  %limit.at = getelementptr i64, ptr %heap, i64 1
  %limit = load i64, ptr %limit.at
  %start.at = getelementptr i64, ptr %heap, i64 2
  %start = load i64, ptr %start.at
  %nonzero_size = call i64 @llvm.umax.i64(i64 %bytes, i64 1)
  %padded = add i64 %nonzero_size, 31
  %size = and i64 %padded, -16
  %increment = add i64 %size, 1099511627776
  %is_possible = icmp ule i64 %bytes, %limit
  %state.read = load atomic i64, ptr %heap monotonic, align 8
  br i1 %is_possible, label %try, label %failure
try:
  %state = phi i64 [%state.read, %entry], [%state.current, %reserve]
  %offset = and i64 %state, 1099511627775
  %end = add i64 %offset, %size
  %fits = icmp ule i64 %end, %limit
  br i1 %fits, label %reserve, label %failure
reserve:
  %state.new = add i64 %state, %increment
  %pair = cmpxchg ptr %heap, i64 %state, i64 %state.new seq_cst seq_cst
  %state.current = extractvalue {i64, i1} %pair, 0
  %is_exchanged = extractvalue {i64, i1} %pair, 1
  br i1 %is_exchanged, label %success, label %try
success:
  %block.start = add i64 %start, %offset
  %result = add i64 %block.start, 16
  ret i64 %result
failure:
  ret i64 0
}

; Count one live allocation less; if none is left, begin again at the offset 0.
define void @ptxlink.free(ptr %ctx, i64 %address) {
entry:
  %heap.at = getelementptr i8, ptr %ctx, i64 $context.heap
  %heap = load ptr, ptr %heap.at
  %state.read = load atomic i64, ptr %heap monotonic, align 8
  %is_null = icmp eq i64 %address, 0
  br i1 %is_null, label %return, label %try
try:
  %state = phi i64 [%state.read, %entry], [%state.current, %try]
  %state.decremented = sub i64 %state, 1099511627776
  %is_empty = icmp ult i64 %state.decremented, 1099511627776
  %state.new = select i1 %is_empty, i64 0, i64 %state.decremented
  %pair = cmpxchg ptr %heap, i64 %state, i64 %state.new seq_cst seq_cst
  %state.current = extractvalue {i64, i1} %pair, 0
  %is_exchanged = extractvalue {i64, i1} %pair, 1
  br i1 %is_exchanged, label %return, label %try
return:
  ret void
}

; ---- Warp operations on the operands of the threads of the mask %lanes, which are in the field `seen` of their
; records. %first_record is the ThreadRecord of lane 0.

; Return the mask of the lanes whose operand is %value.

define i32 @ptxlink.ballot(ptr %first_record, i32 %lanes, i64 %value) {
entry:
  br label %loop
loop:
  %remaining = phi i32 [%lanes, %entry], [%remaining.next, %lane.step]
  %result = phi i32 [0, %entry], [%result.next, %lane.step]
  %has_more = icmp ne i32 %remaining, 0
  br i1 %has_more, label %lane.step, label %done
lane.step:
  %lane = call i32 @llvm.cttz.i32(i32 %remaining, i1 true)
  %minus_one = sub i32 %remaining, 1
  %remaining.next = and i32 %remaining, %minus_one
  %record = getelementptr [$thread.size x i8], ptr %first_record, i32 %lane
  %seen.at = getelementptr i8, ptr %record, i64 $thread.seen
  %seen = load i64, ptr %seen.at
  %is_equal = icmp eq i64 %seen, %value
  %bit = zext i1 %is_equal to i32
  %lane.bit = shl i32 %bit, %lane
  %result.next = or i32 %result, %lane.bit
  br label %loop
done:
  ret i32 %result
}

; `redux` of integers. The operations are numbered as in `warps._REDUCTIONS`. The result begins as the operation's
; identity, which leaves the first operand as it is.
@identities = internal constant [8 x i32] [i32 0, i32 -1, i32 0, i32 0, i32 2147483647, i32 -2147483648, i32 -1, i32 0]

define i32 @ptxlink.reduce(ptr %first_record, i32 %lanes, i32 %operation) {
entry:
  %identity.at = getelementptr [8 x i32], ptr @identities, i32 0, i32 %operation
  %identity = load i32, ptr %identity.at
  br label %loop
loop:
  %remaining = phi i32 [%lanes, %entry], [%remaining.next, %combined]
  %result = phi i32 [%identity, %entry], [%result.next, %combined]
  %has_more = icmp ne i32 %remaining, 0
  br i1 %has_more, label %lane.step, label %done
lane.step:
  %lane = call i32 @llvm.cttz.i32(i32 %remaining, i1 true)
  %minus_one = sub i32 %remaining, 1
  %remaining.next = and i32 %remaining, %minus_one
  %record = getelementptr [$thread.size x i8], ptr %first_record, i32 %lane
  %seen.at = getelementptr i8, ptr %record, i64 $thread.seen
  %value = load i32, ptr %seen.at
  switch i32 %operation, label %add [i32 1, label %and i32 2, label %or i32 3, label %xor i32 4, label %smin
                               i32 5, label %smax i32 6, label %umin i32 7, label %umax]
add:
  %sum = add i32 %result, %value
  br label %combined
and:
  %conjunction = and i32 %result, %value
  br label %combined
or:
  %disjunction = or i32 %result, %value
  br label %combined
xor:
  %difference = xor i32 %result, %value
  br label %combined
smin:
  %minimum.signed = call i32 @llvm.smin.i32(i32 %result, i32 %value)
  br label %combined
smax:
  %maximum.signed = call i32 @llvm.smax.i32(i32 %result, i32 %value)
  br label %combined
umin:
  %minimum = call i32 @llvm.umin.i32(i32 %result, i32 %value)
  br label %combined
umax:
  %maximum = call i32 @llvm.umax.i32(i32 %result, i32 %value)
  br label %combined
combined:
  %result.next = phi i32 [%sum, %add], [%conjunction, %and], [%disjunction, %or], [%difference, %xor], [%minimum.signed, %smin], [%maximum.signed, %smax], [%minimum, %umin], [%maximum, %umax]
  br label %loop
done:
  ret i32 %result
}

; ---- The scheduler of kernels whose threads can suspend. Each thread is a coroutine, and has a ThreadRecord. Functions
; that return an i32 return a BlockStatus, except for @is_at_barrier.

; Resume one thread; return whether a fault is recorded.

define internal i1 @resume_thread(ptr %ctx, ptr %record) {
  %number.at = getelementptr i8, ptr %record, i64 $thread.number
  %number = load i32, ptr %number.at
  %current.at = getelementptr i8, ptr %ctx, i64 $context.current_thread
  store i32 %number, ptr %current.at
  %handle.at = getelementptr i8, ptr %record, i64 $thread.handle
  %handle = load ptr, ptr %handle.at
  call void @llvm.coro.resume(ptr %handle)
  %has_fault = call i1 @has_fault(ptr %ctx)
  ret i1 %has_fault
}

; Run each thread of a block until it suspends or exits; %ramp is the function of the kernel that starts a coroutine in
; the memory %frame, and returns its handle.
define i32 @ptxlink.start_threads(ptr %ctx, ptr %ramp) {
entry:
  %arrivals.at = getelementptr i8, ptr %ctx, i64 $context.barrier_arrivals
  store [16 x i32] zeroinitializer, ptr %arrivals.at
  %records.at = getelementptr i8, ptr %ctx, i64 $context.thread_records
  %records = load ptr, ptr %records.at
  %count.at = getelementptr i8, ptr %ctx, i64 $context.thread_count
  %count = load i32, ptr %count.at
  %region_cache.at = getelementptr i8, ptr %ctx, i64 $context.region_cache
  %region_cache = load ptr, ptr %region_cache.at
  %params.at = getelementptr i8, ptr %ctx, i64 $context.params
  %params = load ptr, ptr %params.at
  %local_size.at = getelementptr i8, ptr %ctx, i64 $context.local_size
  %local_size = load i64, ptr %local_size.at
  %frames.at = getelementptr i8, ptr %ctx, i64 $context.coroutine_frames
  %frames = load ptr, ptr %frames.at
  %frame_size.at = getelementptr i8, ptr %ctx, i64 $context.frame_size
  %frame_size = load i64, ptr %frame_size.at
  %ntid.at = getelementptr i8, ptr %ctx, i64 $context.ntid
  %width = load i32, ptr %ntid.at
  %height.at = getelementptr i32, ptr %ntid.at, i64 1
  %height = load i32, ptr %height.at
  %current.at = getelementptr i8, ptr %ctx, i64 $context.current_thread
  br label %loop
loop:
  %thread = phi i32 [0, %entry], [%next, %start]
  %is_in_block = icmp ult i32 %thread, %count
  br i1 %is_in_block, label %start, label %done
start:
  %x = urem i32 %thread, %width
  %row = udiv i32 %thread, %width
  %y = urem i32 %row, %height
  %z = udiv i32 %row, %height
  %thread.wide = zext i32 %thread to i64
  %local.thread = call ptr @local_memory(ptr %ctx, i32 %thread)
  %limit = getelementptr i8, ptr %local.thread, i64 %local_size
  %frame.offset = mul i64 %thread.wide, %frame_size
  %frame = getelementptr i8, ptr %frames, i64 %frame.offset
  %record = getelementptr [$thread.size x i8], ptr %records, i32 %thread
  %number.at = getelementptr i8, ptr %record, i64 $thread.number
  store i32 %thread, ptr %number.at
  store i32 %thread, ptr %current.at
  %handle = call i64 %ramp(ptr %ctx, ptr %region_cache, ptr %local.thread, ptr %limit, i32 %x, i32 %y, i32 %z, ptr %params, ptr %record, ptr %frame)
  %handle.at = getelementptr i8, ptr %record, i64 $thread.handle
  store i64 %handle, ptr %handle.at
  %has_fault = call i1 @has_fault(ptr %ctx)
  %next = add i32 %thread, 1
  br i1 %has_fault, label %fault, label %loop
fault:
  ret i32 $status.faulted
done:
  ret i32 $status.finished
}

; Resume the threads of a warp that are suspended in %state, group by group. For the state `warp`, threads with the same
; mask (%key) form a group, which is resumed once every thread of the mask that has not exited is in it. For the state
; `activemask`, threads at the same statement (%site) form a group, which is resumed at once. Before a group is resumed,
; the record of each of its threads gets a copy of the operand (%value) in `seen`, and the mask of the group in `group`.
; synccheck reports a group with threads that the mask does not name: the site of the other thread is then -2.
define internal i32 @resume_warp(ptr %ctx, ptr %first_record, i32 %lane_count, i32 %state) {
entry:
  %has_mask = icmp eq i32 %state, $state.warp
  br label %scan
scan:
  %scan.lane = phi i32 [0, %entry], [%scan.next, %scanned]
  %alive = phi i32 [0, %entry], [%alive.new, %scanned]
  %members = phi i32 [0, %entry], [%members.new, %scanned]
  %scan.has_more = icmp ult i32 %scan.lane, %lane_count
  br i1 %scan.has_more, label %scanned, label %next_group
scanned:
  %scan.record = getelementptr [$thread.size x i8], ptr %first_record, i32 %scan.lane
  %scan.state.at = getelementptr i8, ptr %scan.record, i64 $thread.state
  %scan.state = load i32, ptr %scan.state.at
  %bit = shl i32 1, %scan.lane
  %is_exited = icmp eq i32 %scan.state, $state.exited
  %scan.alive = select i1 %is_exited, i32 0, i32 %bit
  %alive.new = or i32 %alive, %scan.alive
  %scan.is_member = icmp eq i32 %scan.state, %state
  %scan.member = select i1 %scan.is_member, i32 %bit, i32 0
  %members.new = or i32 %members, %scan.member
  %scan.next = add i32 %scan.lane, 1
  br label %scan
next_group:
  %remaining = phi i32 [%members, %scan], [%remaining.next, %decide], [%remaining.next, %resuming]
  %result = phi i32 [$status.finished, %scan], [%result, %decide], [$status.resumed, %resuming]
  %has_more = icmp ne i32 %remaining, 0
  br i1 %has_more, label %gather, label %done
gather:
  %leader = call i32 @llvm.cttz.i32(i32 %remaining, i1 true)
  %leader.record = getelementptr [$thread.size x i8], ptr %first_record, i32 %leader
  %key.at = getelementptr i8, ptr %leader.record, i64 $thread.key
  %key = load i32, ptr %key.at
  %site.at = getelementptr i8, ptr %leader.record, i64 $thread.fault_site
  %site = load i32, ptr %site.at
  br label %compare
compare:
  %compare.remaining = phi i32 [%remaining, %gather], [%compare.remaining.next, %compared]
  %group = phi i32 [0, %gather], [%group.new, %compared]
  %compare.has_more = icmp ne i32 %compare.remaining, 0
  br i1 %compare.has_more, label %compared, label %decide
compared:
  %compare.lane = call i32 @llvm.cttz.i32(i32 %compare.remaining, i1 true)
  %compare.minus_one = sub i32 %compare.remaining, 1
  %compare.remaining.next = and i32 %compare.remaining, %compare.minus_one
  %compare.record = getelementptr [$thread.size x i8], ptr %first_record, i32 %compare.lane
  %compare.key.at = getelementptr i8, ptr %compare.record, i64 $thread.key
  %compare.key = load i32, ptr %compare.key.at
  %compare.site.at = getelementptr i8, ptr %compare.record, i64 $thread.fault_site
  %compare.site = load i32, ptr %compare.site.at
  %has_same_key = icmp eq i32 %compare.key, %key
  %has_same_site = icmp eq i32 %compare.site, %site
  %is_in_group = select i1 %has_mask, i1 %has_same_key, i1 %has_same_site
  %compare.bit = shl i32 1, %compare.lane
  %compare.member = select i1 %is_in_group, i32 %compare.bit, i32 0
  %group.new = or i32 %group, %compare.member
  br label %compare
decide:
  %not_in_group = xor i32 %group, -1
  %remaining.next = and i32 %remaining, %not_in_group
  %required = and i32 %key, %alive
  %missing = and i32 %required, %not_in_group
  %has_all = icmp eq i32 %missing, 0
  %has_no_mask = xor i1 %has_mask, true
  %is_ready = or i1 %has_all, %has_no_mask
  br i1 %is_ready, label %checking, label %next_group
checking:
  %check_barrier.at = getelementptr i8, ptr %ctx, i64 $context.check_barrier
  %check_barrier = load ptr, ptr %check_barrier.at
  %has_check = icmp ne ptr %check_barrier, null
  %not_in_key = xor i32 %key, -1
  %unnamed = and i32 %group, %not_in_key
  %has_unnamed = icmp ne i32 %unnamed, 0
  %is_checked = and i1 %has_check, %has_mask
  %needs_report = and i1 %is_checked, %has_unnamed
  br i1 %needs_report, label %report, label %copying
report:
  %unnamed.lane = call i32 @llvm.cttz.i32(i32 %unnamed, i1 true)
  %unnamed.record = getelementptr [$thread.size x i8], ptr %first_record, i32 %unnamed.lane
  %unnamed.site.at = getelementptr i8, ptr %unnamed.record, i64 $thread.fault_site
  %unnamed.site = load i32, ptr %unnamed.site.at
  %unnamed.number.at = getelementptr i8, ptr %unnamed.record, i64 $thread.number
  %unnamed.number = load i32, ptr %unnamed.number.at
  call void %check_barrier(ptr %ctx, i32 %unnamed.site, i32 -2, i32 %unnamed.number)
  br label %copying
copying:
  %copy.remaining = phi i32 [%group, %checking], [%group, %report], [%copy.remaining.next, %copy]
  %copy.has_more = icmp ne i32 %copy.remaining, 0
  br i1 %copy.has_more, label %copy, label %resuming
copy:
  %copy.lane = call i32 @llvm.cttz.i32(i32 %copy.remaining, i1 true)
  %copy.minus_one = sub i32 %copy.remaining, 1
  %copy.remaining.next = and i32 %copy.remaining, %copy.minus_one
  %copy.record = getelementptr [$thread.size x i8], ptr %first_record, i32 %copy.lane
  %value.at = getelementptr i8, ptr %copy.record, i64 $thread.value
  %value = load i64, ptr %value.at
  %seen.at = getelementptr i8, ptr %copy.record, i64 $thread.seen
  store i64 %value, ptr %seen.at
  %group.at = getelementptr i8, ptr %copy.record, i64 $thread.group
  store i32 %group, ptr %group.at
  br label %copying
resuming:
  %resume.remaining = phi i32 [%group, %copying], [%resume.remaining.next, %resumed]
  %resume.has_more = icmp ne i32 %resume.remaining, 0
  br i1 %resume.has_more, label %resume, label %next_group
resume:
  %resume.lane = call i32 @llvm.cttz.i32(i32 %resume.remaining, i1 true)
  %resume.minus_one = sub i32 %resume.remaining, 1
  %resume.remaining.next = and i32 %resume.remaining, %resume.minus_one
  %resume.record = getelementptr [$thread.size x i8], ptr %first_record, i32 %resume.lane
  %has_fault = call i1 @resume_thread(ptr %ctx, ptr %resume.record)
  br i1 %has_fault, label %fault, label %resumed
resumed:
  br label %resuming
fault:
  ret i32 $status.faulted
done:
  ret i32 %result
}

; Resume the threads of all warps that are suspended in %state. The status is `resumed` if any thread was: `finished` is
; 0, so that `or` combines them.
define internal i32 @resume_warps(ptr %ctx, i32 %state) {
entry:
  %records.at = getelementptr i8, ptr %ctx, i64 $context.thread_records
  %records = load ptr, ptr %records.at
  %count.at = getelementptr i8, ptr %ctx, i64 $context.thread_count
  %count = load i32, ptr %count.at
  br label %loop
loop:
  %start = phi i32 [0, %entry], [%next, %continue]
  %result = phi i32 [$status.finished, %entry], [%result.next, %continue]
  %is_in_block = icmp ult i32 %start, %count
  br i1 %is_in_block, label %warp, label %done
warp:
  %remaining = sub i32 %count, %start
  %lane_count = call i32 @llvm.umin.i32(i32 %remaining, i32 32)
  %first_record = getelementptr [$thread.size x i8], ptr %records, i32 %start
  %status = call i32 @resume_warp(ptr %ctx, ptr %first_record, i32 %lane_count, i32 %state)
  %is_faulted = icmp eq i32 %status, $status.faulted
  br i1 %is_faulted, label %fault, label %continue
continue:
  %next = add i32 %start, 32
  %result.next = or i32 %result, %status
  br label %loop
fault:
  ret i32 $status.faulted
done:
  ret i32 %result
}

; Open the first barrier that enough threads have reached, and resume the threads that wait there. Store in their
; records how many threads arrived (`group`), and for how many the predicate of `bar.red` is true (`seen`).
; %early_arrivals counts the threads that executed `bar.arrive`; those beyond the required number have arrived for the
; next time that the barrier opens. %check_barrier is the function of synccheck, or null. It reports a barrier that
; opens although threads have exited, or that threads reach at several statements. Its arguments are the context, the
; site of a thread, the site of another thread (-1 if threads have exited), and the first thread.
define internal i32 @open_barriers(ptr %ctx) {
entry:
  %records.at = getelementptr i8, ptr %ctx, i64 $context.thread_records
  %records = load ptr, ptr %records.at
  %thread_count.at = getelementptr i8, ptr %ctx, i64 $context.thread_count
  %thread_count = load i32, ptr %thread_count.at
  %arrivals.at = getelementptr i8, ptr %ctx, i64 $context.barrier_arrivals
  br label %counting_alive
counting_alive:
  %alive.thread = phi i32 [0, %entry], [%alive.next, %counted_alive]
  %alive_count = phi i32 [0, %entry], [%alive_count.new, %counted_alive]
  %alive.has_more = icmp ult i32 %alive.thread, %thread_count
  br i1 %alive.has_more, label %counted_alive, label %leaders
counted_alive:
  %alive.record = getelementptr [$thread.size x i8], ptr %records, i32 %alive.thread
  %alive.state.at = getelementptr i8, ptr %alive.record, i64 $thread.state
  %alive.state = load i32, ptr %alive.state.at
  %is_alive = icmp ne i32 %alive.state, $state.exited
  %is_alive.wide = zext i1 %is_alive to i32
  %alive_count.new = add i32 %alive_count, %is_alive.wide
  %alive.next = add i32 %alive.thread, 1
  br label %counting_alive
leaders:
  %leader = phi i32 [0, %counting_alive], [%leader.next, %leader.check], [%leader.next, %decide]
  %leader.has_more = icmp ult i32 %leader, %thread_count
  br i1 %leader.has_more, label %leader.check, label %none_opens
leader.check:
  %record = getelementptr [$thread.size x i8], ptr %records, i32 %leader
  %state.at = getelementptr i8, ptr %record, i64 $thread.state
  %state = load i32, ptr %state.at
  %key.at = getelementptr i8, ptr %record, i64 $thread.key
  %key = load i32, ptr %key.at
  %expected.at = getelementptr i8, ptr %record, i64 $thread.expected_count
  %expected = load i32, ptr %expected.at
  %leader.next = add i32 %leader, 1
  %barrier = and i32 %key, 15
  %early_arrivals.at = getelementptr [16 x i32], ptr %arrivals.at, i32 0, i32 %barrier
  %early_arrivals = load i32, ptr %early_arrivals.at
  %is_at_barrier = icmp eq i32 %state, $state.barrier
  br i1 %is_at_barrier, label %counting, label %leaders
counting:
  %counted.thread = phi i32 [0, %leader.check], [%counted.next, %counted]
  %arrived_count = phi i32 [%early_arrivals, %leader.check], [%arrived_count.new, %counted]
  %true_count = phi i32 [0, %leader.check], [%true_count.new, %counted]
  %counting.has_more = icmp ult i32 %counted.thread, %thread_count
  br i1 %counting.has_more, label %counted, label %decide
counted:
  %counted.arrived = call i32 @is_at_barrier(ptr %records, i32 %counted.thread, i32 %key)
  %counted.record = getelementptr [$thread.size x i8], ptr %records, i32 %counted.thread
  %value.at = getelementptr i8, ptr %counted.record, i64 $thread.value
  %value = load i32, ptr %value.at
  %counted.true = mul i32 %counted.arrived, %value
  %arrived_count.new = add i32 %arrived_count, %counted.arrived
  %true_count.new = add i32 %true_count, %counted.true
  %counted.next = add i32 %counted.thread, 1
  br label %counting
decide:
  %is_for_all = icmp eq i32 %expected, 0
  %required = select i1 %is_for_all, i32 %alive_count, i32 %expected
  %has_enough = icmp uge i32 %arrived_count, %required
  br i1 %has_enough, label %subtract, label %leaders
subtract:
  %surplus = sub i32 %arrived_count, %required
  %early_arrivals.left = call i32 @llvm.umin.i32(i32 %surplus, i32 %early_arrivals)
  store i32 %early_arrivals.left, ptr %early_arrivals.at
  %check_barrier.at = getelementptr i8, ptr %ctx, i64 $context.check_barrier
  %check_barrier = load ptr, ptr %check_barrier.at
  %has_check = icmp ne ptr %check_barrier, null
  %site.at = getelementptr i8, ptr %record, i64 $thread.fault_site
  %site = load i32, ptr %site.at
  %has_ended_threads = icmp ult i32 %arrived_count, %thread_count
  %is_incomplete = and i1 %has_ended_threads, %is_for_all
  %needs_report = and i1 %is_incomplete, %has_check
  br i1 %needs_report, label %report, label %releasing
report:
  call void %check_barrier(ptr %ctx, i32 %site, i32 -1, i32 %leader)
  br label %releasing
releasing:
  %release.thread = phi i32 [0, %subtract], [0, %report], [%release.next, %released]
  %release.has_more = icmp ult i32 %release.thread, %thread_count
  br i1 %release.has_more, label %release.check, label %resuming
release.check:
  %release.arrived = call i32 @is_at_barrier(ptr %records, i32 %release.thread, i32 %key)
  %release.is_member = icmp ne i32 %release.arrived, 0
  br i1 %release.is_member, label %release, label %released
release:
  %release.record = getelementptr [$thread.size x i8], ptr %records, i32 %release.thread
  %seen.at = getelementptr i8, ptr %release.record, i64 $thread.seen
  %true_count.wide = zext i32 %true_count to i64
  store i64 %true_count.wide, ptr %seen.at
  %group.at = getelementptr i8, ptr %release.record, i64 $thread.group
  store i32 %arrived_count, ptr %group.at
  %release.site.at = getelementptr i8, ptr %release.record, i64 $thread.fault_site
  %release.site = load i32, ptr %release.site.at
  %is_elsewhere = icmp ne i32 %release.site, %site
  %is_divergent = and i1 %is_elsewhere, %has_check
  br i1 %is_divergent, label %report.other, label %mark
report.other:
  call void %check_barrier(ptr %ctx, i32 %release.site, i32 %site, i32 %release.thread)
  br label %mark
mark:
  ; Mark all before any is resumed: a resumed thread may reach the same barrier again.
  %release.state.at = getelementptr i8, ptr %release.record, i64 $thread.state
  store i32 $state.released, ptr %release.state.at
  br label %released
released:
  %release.next = add i32 %release.thread, 1
  br label %releasing
resuming:
  %status = call i32 @ptxlink.resume_in_state(ptr %ctx, i32 $state.released)
  ret i32 %status
none_opens:
  ret i32 $status.finished
}

; Return 1 if a thread is suspended at the barrier %key, else 0.
define internal i32 @is_at_barrier(ptr %records, i32 %thread, i32 %key) {
  %record = getelementptr [$thread.size x i8], ptr %records, i32 %thread
  %state.at = getelementptr i8, ptr %record, i64 $thread.state
  %state = load i32, ptr %state.at
  %key.at = getelementptr i8, ptr %record, i64 $thread.key
  %thread.key = load i32, ptr %key.at
  %has_same_key = icmp eq i32 %thread.key, %key
  %is_suspended = icmp eq i32 %state, $state.barrier
  %is_at_barrier = and i1 %has_same_key, %is_suspended
  %result = zext i1 %is_at_barrier to i32
  ret i32 %result
}

; Resume all threads that are suspended in %state. The status is `resumed` if there is one.
define i32 @ptxlink.resume_in_state(ptr %ctx, i32 %state) {
entry:
  %records.at = getelementptr i8, ptr %ctx, i64 $context.thread_records
  %records = load ptr, ptr %records.at
  %count.at = getelementptr i8, ptr %ctx, i64 $context.thread_count
  %count = load i32, ptr %count.at
  br label %loop
loop:
  %thread = phi i32 [0, %entry], [%next, %check], [%next, %resume]
  %result = phi i32 [$status.finished, %entry], [%result, %check], [$status.resumed, %resume]
  %is_in_block = icmp ult i32 %thread, %count
  br i1 %is_in_block, label %check, label %done
check:
  %record = getelementptr [$thread.size x i8], ptr %records, i32 %thread
  %state.at = getelementptr i8, ptr %record, i64 $thread.state
  %thread.state = load i32, ptr %state.at
  %next = add i32 %thread, 1
  %matches = icmp eq i32 %thread.state, %state
  br i1 %matches, label %resume, label %loop
resume:
  %has_fault = call i1 @resume_thread(ptr %ctx, ptr %record)
  br i1 %has_fault, label %fault, label %loop
fault:
  ret i32 $status.faulted
done:
  ret i32 %result
}

; Run a block until it finishes, faults, waits at the grid barrier, or yields to other blocks. Each round takes the
; first of these steps that resumes a thread: complete groups of warp operations, threads at `activemask`, a barrier
; that opens, loops that have yielded. If no step does, threads that have neither exited nor wait for the grid are
; deadlocked.
define i32 @ptxlink.schedule(ptr %ctx) {
entry:
  br label %round
round:
  %warps.status = call i32 @resume_warps(ptr %ctx, i32 $state.warp)
  switch i32 %warps.status, label %resume_active [i32 $status.faulted, label %fault i32 $status.resumed, label %round]
resume_active:
  %activemask.status = call i32 @resume_warps(ptr %ctx, i32 $state.activemask)
  switch i32 %activemask.status, label %open_barrier [i32 $status.faulted, label %fault i32 $status.resumed, label %round]
open_barrier:
  %barriers.status = call i32 @open_barriers(ptr %ctx)
  switch i32 %barriers.status, label %resume_loops [i32 $status.faulted, label %fault i32 $status.resumed, label %round]
resume_loops:
  %loops.status = call i32 @ptxlink.resume_in_state(ptr %ctx, i32 $state.yielded)
  switch i32 %loops.status, label %finish [i32 $status.faulted, label %fault i32 $status.resumed, label %yielded.resumed]
yielded.resumed:
  ; In a cooperative launch, a loop may wait for another block.
  %cooperative.at = getelementptr i8, ptr %ctx, i64 $context.cooperative
  %cooperative = load i32, ptr %cooperative.at
  %is_independent = icmp eq i32 %cooperative, 0
  br i1 %is_independent, label %round, label %yield
yield:
  ret i32 $status.yielded
finish:
  %records.at = getelementptr i8, ptr %ctx, i64 $context.thread_records
  %records = load ptr, ptr %records.at
  %count.at = getelementptr i8, ptr %ctx, i64 $context.thread_count
  %count = load i32, ptr %count.at
  br label %loop
loop:
  %thread = phi i32 [0, %finish], [%next, %check], [%next, %grid]
  %status = phi i32 [$status.finished, %finish], [%status, %check], [$status.at_grid_barrier, %grid]
  %is_in_block = icmp ult i32 %thread, %count
  br i1 %is_in_block, label %check, label %done
check:
  %record = getelementptr [$thread.size x i8], ptr %records, i32 %thread
  %state.at = getelementptr i8, ptr %record, i64 $thread.state
  %state = load i32, ptr %state.at
  %next = add i32 %thread, 1
  switch i32 %state, label %deadlock [i32 $state.exited, label %loop i32 $state.grid_barrier, label %grid]
grid:
  br label %loop
deadlock:
  %current.at = getelementptr i8, ptr %ctx, i64 $context.current_thread
  store i32 %thread, ptr %current.at
  %site.at = getelementptr i8, ptr %record, i64 $thread.fault_site
  %site = load i32, ptr %site.at
  %site.wide = zext i32 %site to i64
  call void @ptxlink.record_fault(ptr %ctx, i64 $fault.deadlock, i64 %site.wide, i64 0, i64 0)
  br label %fault
fault:
  ret i32 $status.faulted
done:
  ret i32 %status
}

; ---- Functions that Python calls.

; Run %block_count blocks of the grid, from the one with the linear index %first_block on; %block is the executor of the
; kernel. Check for signals every 256 blocks. After an interruption, return `finished`: if a signal handler raised an
; exception, Python raises it when this function returns.
define i32 @ptxlink.run_grid(ptr %ctx, ptr %block, i64 %first_block, i64 %block_count, i32 %resume_mode) {
entry:
  call void @release_gil(ptr %ctx)
  %nctaid.at = getelementptr i8, ptr %ctx, i64 $context.nctaid
  %width.narrow = load i32, ptr %nctaid.at
  %height.at = getelementptr i32, ptr %nctaid.at, i64 1
  %height.narrow = load i32, ptr %height.at
  %width = zext i32 %width.narrow to i64
  %height = zext i32 %height.narrow to i64
  %ctaid.at = getelementptr i8, ptr %ctx, i64 $context.ctaid
  %end = add i64 %first_block, %block_count
  br label %loop
loop:
  %block_index = phi i64 [%first_block, %entry], [%next, %continue], [%next, %poll]
  %is_in_range = icmp ult i64 %block_index, %end
  br i1 %is_in_range, label %run, label %done
run:
  %x = urem i64 %block_index, %width
  %row = udiv i64 %block_index, %width
  %y = urem i64 %row, %height
  %z = udiv i64 %row, %height
  %x.narrow = trunc i64 %x to i32
  %y.narrow = trunc i64 %y to i32
  %z.narrow = trunc i64 %z to i32
  %y.at = getelementptr i32, ptr %ctaid.at, i64 1
  %z.at = getelementptr i32, ptr %ctaid.at, i64 2
  store i32 %x.narrow, ptr %ctaid.at
  store i32 %y.narrow, ptr %y.at
  store i32 %z.narrow, ptr %z.at
  %status = call i32 %block(ptr %ctx, i32 %resume_mode)
  %next = add i64 %block_index, 1
  %is_finished = icmp eq i32 %status, $status.finished
  br i1 %is_finished, label %continue, label %done
continue:
  %low.bits = and i64 %next, 255
  %is_poll_due = icmp eq i64 %low.bits, 0
  br i1 %is_poll_due, label %poll, label %loop
poll:
  %is_interrupted = call i1 @check_signals(ptr %ctx)
  br i1 %is_interrupted, label %done, label %loop
done:
  %result = phi i32 [$status.finished, %loop], [%status, %run], [$status.finished, %poll]
  call void @acquire_gil(ptr %ctx)
  ret i32 %result
}

; Call a device function for each of %count elements of arrays, at whose addresses and strides %address points. Check
; for signals every 65536 elements. %resume_mode is unused: Python calls this function as it calls run_grid.
define i32 @ptxlink.run_elements(ptr %ctx, ptr %executor, i64 %address, i64 %count, i32 %resume_mode) {
entry:
  %arrays = inttoptr i64 %address to ptr
  call void @release_gil(ptr %ctx)
  br label %loop
loop:
  %begin = phi i64 [0, %entry], [%end, %poll]
  %is_in_range = icmp ult i64 %begin, %count
  br i1 %is_in_range, label %run, label %done
run:
  %chunk.end = add i64 %begin, 65536
  %end = call i64 @llvm.smin.i64(i64 %chunk.end, i64 %count)
  %status = call i32 %executor(ptr %ctx, ptr %arrays, i64 %begin, i64 %end)
  %is_finished = icmp eq i32 %status, $status.finished
  br i1 %is_finished, label %poll, label %done
poll:
  %is_interrupted = call i1 @check_signals(ptr %ctx)
  br i1 %is_interrupted, label %done, label %loop
done:
  %result = phi i32 [$status.finished, %loop], [%status, %run], [$status.finished, %poll]
  call void @acquire_gil(ptr %ctx)
  ret i32 %result
}
