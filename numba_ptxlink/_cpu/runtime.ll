; Functions that all programs share, compiled once: faults, the search for a region, step limits, the scheduler of
; suspended threads, and the entries that Python calls. `$context.params` is replaced by runtime.py: the offset of a
; field of BlockContext ($context), ThreadRecord ($thread) or FaultRecord ($fault_record), or the value of a member of
; ThreadState ($state), Fault ($fault), BlockStatus ($status) or Resume ($resume).

declare i32 @clock_gettime(i32, ptr)

; ---- Faults. Only the first is recorded: the thread stops, and later faults are consequences.

define void @ptxlink.record_fault(ptr %ctx, i64 %kind, i64 %site, i64 %address, i64 %size) noinline cold {
  %record.at = getelementptr i8, ptr %ctx, i64 $context.fault_record
  %record = load ptr, ptr %record.at
  %kind.at = getelementptr i8, ptr %record, i64 $fault_record.kind
  %old = load i64, ptr %kind.at
  %first = icmp eq i64 %old, 0
  br i1 %first, label %store, label %done
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

; ---- Regions: find the one that contains an access, and store its start and limit in %cached, so that the next
; access by the same instruction needs no search. An access of %size bytes fits at offsets below the limit. Without
; a region, record a fault and return false.

define i1 @ptxlink.find_region(ptr %ctx, ptr %cached, i64 %address, i64 %size, i64 %site, i1 %writes) noinline cold {
entry:
  %mask = sub i64 %size, 1
  %remainder = and i64 %address, %mask
  %misaligned = icmp ne i64 %remainder, 0
  br i1 %misaligned, label %bad, label %search
search:
  %regions.at = getelementptr i8, ptr %ctx, i64 $context.regions
  %regions = load ptr, ptr %regions.at
  %count.at = getelementptr i8, ptr %ctx, i64 $context.region_count
  %count = load i64, ptr %count.at
  br label %scan
scan:
  %index = phi i64 [0, %search], [%next, %continue]
  %more = icmp ult i64 %index, %count
  br i1 %more, label %compare, label %bad
compare:
  %start.at = getelementptr [2 x i64], ptr %regions, i64 %index, i64 0
  %end.at = getelementptr [2 x i64], ptr %regions, i64 %index, i64 1
  %start = load i64, ptr %start.at
  %end = load i64, ptr %end.at
  %region.size = sub i64 %end, %start
  %fits = icmp uge i64 %region.size, %size
  %last.offset = sub i64 %region.size, %size
  %distance = sub i64 %address, %start
  %inside = icmp ule i64 %distance, %last.offset
  %contains = and i1 %fits, %inside
  br i1 %contains, label %matched, label %continue
continue:
  %next = add i64 %index, 1
  br label %scan
matched:
  %writable.at = getelementptr i8, ptr %ctx, i64 $context.writable_count
  %writable = load i64, ptr %writable.at
  %read_only = icmp uge i64 %index, %writable
  %forbidden = and i1 %writes, %read_only
  br i1 %forbidden, label %bad, label %good
good:
  %cached.limit.at = getelementptr i64, ptr %cached, i64 1
  %limit = add i64 %last.offset, 1
  store i64 %start, ptr %cached
  store i64 %limit, ptr %cached.limit.at
  ret i1 true
bad:
  %kind = phi i64 [$fault.misaligned, %entry], [$fault.access, %scan], [$fault.read_only, %matched]
  call void @ptxlink.record_fault(ptr %ctx, i64 %kind, i64 %site, i64 %address, i64 %size)
  ret i1 false
}

; ---- Python's global interpreter lock is released while generated code runs, so that other threads run.

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

; ---- Run pending signal handlers of Python; return whether one raised, as Ctrl-C does.

define internal i1 @check_signals(ptr %ctx) noinline cold {
  %check.at = getelementptr i8, ptr %ctx, i64 $context.check_signals
  %check = load ptr, ptr %check.at
  call void @acquire_gil(ptr %ctx)
  %result = call i32 %check()
  call void @release_gil(ptr %ctx)
  %interrupted = icmp ne i32 %result, 0
  ret i1 %interrupted
}

; Return how many back edges a loop may take until the next call; 0 if it has to end, with a fault recorded.
; The number is at most %chunk, and is subtracted from the thread's remaining steps at %steps.at.
define i32 @ptxlink.check_step_limit(ptr %ctx, ptr %steps.at, i64 %site, i32 %chunk) noinline cold {
entry:
  %steps = load i64, ptr %steps.at
  %exhausted = icmp sle i64 %steps, 0
  br i1 %exhausted, label %fault, label %poll
poll:
  %interrupted = call i1 @check_signals(ptr %ctx)
  br i1 %interrupted, label %fault, label %grant
grant:
  %chunk.wide = zext i32 %chunk to i64
  %granted = call i64 @llvm.smin.i64(i64 %steps, i64 %chunk.wide)
  %rest = sub i64 %steps, %granted
  store i64 %rest, ptr %steps.at
  %result = trunc i64 %granted to i32
  ret i32 %result
fault:
  %kind = phi i64 [$fault.step_limit, %entry], [$fault.interrupted, %poll]
  call void @ptxlink.record_fault(ptr %ctx, i64 %kind, i64 %site, i64 0, i64 0)
  ret i32 0
}

; ---- Call printf.print_formatted; return its result, -1 if it raised. Python finds the exception when the entry
; returns.

@two_integers = internal constant [3 x i8] c"KK\00"

define i32 @ptxlink.print(ptr %ctx, i64 %template, i64 %arguments) {
entry:
  %print.at = getelementptr i8, ptr %ctx, i64 $context.print_function
  %call.at = getelementptr i8, ptr %ctx, i64 $context.call_object
  %number.at = getelementptr i8, ptr %ctx, i64 $context.to_long
  %drop.at = getelementptr i8, ptr %ctx, i64 $context.decref
  %print = load ptr, ptr %print.at
  %call = load ptr, ptr %call.at
  %number = load ptr, ptr %number.at
  %drop = load ptr, ptr %drop.at
  call void @acquire_gil(ptr %ctx)
  %returned = call ptr (ptr, ptr, ...) %call(ptr %print, ptr @two_integers, i64 %template, i64 %arguments)
  %failed = icmp eq ptr %returned, null
  br i1 %failed, label %done, label %convert
convert:
  %wide = call i64 %number(ptr %returned)
  %narrow = trunc i64 %wide to i32
  call void %drop(ptr %returned)
  br label %done
done:
  %result = phi i32 [-1, %entry], [%narrow, %convert]
  call void @release_gil(ptr %ctx)
  ret i32 %result
}

; ---- Nanoseconds since 1970, and the heap of device code.

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

; A bump allocator. The first word of the heap has the offset of the next allocation in its lower 40 bits, and the
; number of live allocations above. When the last one is freed, the offset returns to 0. Each allocation begins behind
; 16 free bytes, as on a GPU: code of `new T[n]` writes n to the 8 bytes before the address that `malloc` returned.
define i64 @ptxlink.allocate(ptr %ctx, i64 %bytes) {
entry:
  %heap.at = getelementptr i8, ptr %ctx, i64 $context.heap
  %heap = load ptr, ptr %heap.at
  %limit.at = getelementptr i64, ptr %heap, i64 1
  %limit = load i64, ptr %limit.at
  %start.at = getelementptr i64, ptr %heap, i64 2
  %start = load i64, ptr %start.at
  %positive = call i64 @llvm.umax.i64(i64 %bytes, i64 1)
  %padded = add i64 %positive, 31
  %size = and i64 %padded, -16
  %increment = add i64 %size, 1099511627776
  %possible = icmp ule i64 %bytes, %limit
  %first = load atomic i64, ptr %heap monotonic, align 8
  br i1 %possible, label %try, label %failure
try:
  %old = phi i64 [%first, %entry], [%current, %reserve]
  %offset = and i64 %old, 1099511627775
  %end = add i64 %offset, %size
  %fits = icmp ule i64 %end, %limit
  br i1 %fits, label %reserve, label %failure
reserve:
  %new = add i64 %old, %increment
  %pair = cmpxchg ptr %heap, i64 %old, i64 %new seq_cst seq_cst
  %current = extractvalue {i64, i1} %pair, 0
  %exchanged = extractvalue {i64, i1} %pair, 1
  br i1 %exchanged, label %success, label %try
success:
  %header = add i64 %start, %offset
  %result = add i64 %header, 16
  ret i64 %result
failure:
  ret i64 0
}

define void @ptxlink.free(ptr %ctx, i64 %address) {
entry:
  %heap.at = getelementptr i8, ptr %ctx, i64 $context.heap
  %heap = load ptr, ptr %heap.at
  %first = load atomic i64, ptr %heap monotonic, align 8
  %null = icmp eq i64 %address, 0
  br i1 %null, label %return, label %try
try:
  %old = phi i64 [%first, %entry], [%current, %try]
  %decremented = sub i64 %old, 1099511627776
  %empty = icmp ult i64 %decremented, 1099511627776
  %new = select i1 %empty, i64 0, i64 %decremented
  %pair = cmpxchg ptr %heap, i64 %old, i64 %new seq_cst seq_cst
  %current = extractvalue {i64, i1} %pair, 0
  %exchanged = extractvalue {i64, i1} %pair, 1
  br i1 %exchanged, label %return, label %try
return:
  ret void
}

; ---- Warp operations on the operands that the threads of the mask %lanes have stored; %first is the record of lane 0.

; Return the lanes whose operand is %value.

define i32 @ptxlink.ballot(ptr %first, i32 %lanes, i64 %value) {
entry:
  br label %next
next:
  %remaining = phi i32 [%lanes, %entry], [%remaining.next, %lane.step]
  %result = phi i32 [0, %entry], [%result.next, %lane.step]
  %any = icmp ne i32 %remaining, 0
  br i1 %any, label %lane.step, label %done
lane.step:
  %lane = call i32 @llvm.cttz.i32(i32 %remaining, i1 true)
  %minus.one = sub i32 %remaining, 1
  %remaining.next = and i32 %remaining, %minus.one
  %record = getelementptr [$thread.size x i8], ptr %first, i32 %lane
  %seen.at = getelementptr i8, ptr %record, i64 $thread.seen
  %seen = load i64, ptr %seen.at
  %same = icmp eq i64 %seen, %value
  %bit = zext i1 %same to i32
  %lane.bit = shl i32 %bit, %lane
  %result.next = or i32 %result, %lane.bit
  br label %next
done:
  ret i32 %result
}

; The identity of each reduction, in the order of `warps._REDUCTIONS`.
@identities = internal constant [8 x i32] [i32 0, i32 -1, i32 0, i32 0, i32 2147483647, i32 -2147483648, i32 -1, i32 0]

define i32 @ptxlink.reduce(ptr %first, i32 %lanes, i32 %operation) {
entry:
  %identity.at = getelementptr [8 x i32], ptr @identities, i32 0, i32 %operation
  %identity = load i32, ptr %identity.at
  br label %next
next:
  %remaining = phi i32 [%lanes, %entry], [%remaining.next, %joined]
  %result = phi i32 [%identity, %entry], [%result.next, %joined]
  %any = icmp ne i32 %remaining, 0
  br i1 %any, label %lane.step, label %done
lane.step:
  %lane = call i32 @llvm.cttz.i32(i32 %remaining, i1 true)
  %minus.one = sub i32 %remaining, 1
  %remaining.next = and i32 %remaining, %minus.one
  %record = getelementptr [$thread.size x i8], ptr %first, i32 %lane
  %seen.at = getelementptr i8, ptr %record, i64 $thread.seen
  %value = load i32, ptr %seen.at
  switch i32 %operation, label %add [i32 1, label %and i32 2, label %or i32 3, label %xor i32 4, label %smin
                               i32 5, label %smax i32 6, label %umin i32 7, label %umax]
add:
  %r0 = add i32 %result, %value
  br label %joined
and:
  %r1 = and i32 %result, %value
  br label %joined
or:
  %r2 = or i32 %result, %value
  br label %joined
xor:
  %r3 = xor i32 %result, %value
  br label %joined
smin:
  %r4 = call i32 @llvm.smin.i32(i32 %result, i32 %value)
  br label %joined
smax:
  %r5 = call i32 @llvm.smax.i32(i32 %result, i32 %value)
  br label %joined
umin:
  %r6 = call i32 @llvm.umin.i32(i32 %result, i32 %value)
  br label %joined
umax:
  %r7 = call i32 @llvm.umax.i32(i32 %result, i32 %value)
  br label %joined
joined:
  %result.next = phi i32 [%r0, %add], [%r1, %and], [%r2, %or], [%r3, %xor], [%r4, %smin], [%r5, %smax], [%r6, %umin], [%r7, %umax]
  br label %next
done:
  ret i32 %result
}

; ---- The scheduler. Each thread is a coroutine with a record. Resume one; return whether a fault is recorded.

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

; Run each thread of a block until it suspends or exits.
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
  %local.at = getelementptr i8, ptr %ctx, i64 $context.local_base
  %local = load ptr, ptr %local.at
  %local_size.at = getelementptr i8, ptr %ctx, i64 $context.local_size
  %local_size = load i64, ptr %local_size.at
  %frames.at = getelementptr i8, ptr %ctx, i64 $context.coroutine_frames
  %frames = load ptr, ptr %frames.at
  %frame_size.at = getelementptr i8, ptr %ctx, i64 $context.frame_size
  %frame_size = load i64, ptr %frame_size.at
  %ntid.at = getelementptr i8, ptr %ctx, i64 $context.ntid
  %nx = load i32, ptr %ntid.at
  %ny.at = getelementptr i32, ptr %ntid.at, i64 1
  %ny = load i32, ptr %ny.at
  %current.at = getelementptr i8, ptr %ctx, i64 $context.current_thread
  br label %loop
loop:
  %thread = phi i32 [0, %entry], [%next, %start]
  %in_block = icmp ult i32 %thread, %count
  br i1 %in_block, label %start, label %done
start:
  %x = urem i32 %thread, %nx
  %row = udiv i32 %thread, %nx
  %y = urem i32 %row, %ny
  %z = udiv i32 %row, %ny
  %thread.wide = zext i32 %thread to i64
  %local.offset = mul i64 %thread.wide, %local_size
  %local.thread = getelementptr i8, ptr %local, i64 %local.offset
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

; Resume the threads of a warp that are suspended in %state. For state `warp`, threads with the same mask form a group,
; which is resumed once every thread of the mask that has not exited is suspended with it. For state `activemask`, the
; threads at the same statement form a group, which is resumed at once.
define internal i32 @resume_warp(ptr %ctx, ptr %first, i32 %width, i32 %state) {
entry:
  %masked = icmp eq i32 %state, $state.warp
  br label %scan
scan:
  %s = phi i32 [0, %entry], [%s.next, %scanned]
  %alive = phi i32 [0, %entry], [%alive.new, %scanned]
  %members = phi i32 [0, %entry], [%members.new, %scanned]
  %s.more = icmp ult i32 %s, %width
  br i1 %s.more, label %scanned, label %next_group
scanned:
  %s.record = getelementptr [$thread.size x i8], ptr %first, i32 %s
  %s.state.at = getelementptr i8, ptr %s.record, i64 $thread.state
  %s.state = load i32, ptr %s.state.at
  %bit = shl i32 1, %s
  %exited = icmp eq i32 %s.state, $state.exited
  %s.alive = select i1 %exited, i32 0, i32 %bit
  %alive.new = or i32 %alive, %s.alive
  %s.matches = icmp eq i32 %s.state, %state
  %s.member = select i1 %s.matches, i32 %bit, i32 0
  %members.new = or i32 %members, %s.member
  %s.next = add i32 %s, 1
  br label %scan
next_group:
  %remaining = phi i32 [%members, %scan], [%remaining.next, %decide], [%remaining.next, %resuming]
  %result = phi i32 [$status.finished, %scan], [%result, %decide], [$status.resumed, %resuming]
  %any = icmp ne i32 %remaining, 0
  br i1 %any, label %gather, label %done
gather:
  %leader = call i32 @llvm.cttz.i32(i32 %remaining, i1 true)
  %leader.record = getelementptr [$thread.size x i8], ptr %first, i32 %leader
  %key.at = getelementptr i8, ptr %leader.record, i64 $thread.key
  %key = load i32, ptr %key.at
  %site.at = getelementptr i8, ptr %leader.record, i64 $thread.fault_site
  %site = load i32, ptr %site.at
  br label %compare
compare:
  %c.remaining = phi i32 [%remaining, %gather], [%c.remaining.next, %compared]
  %group = phi i32 [0, %gather], [%group.new, %compared]
  %c.any = icmp ne i32 %c.remaining, 0
  br i1 %c.any, label %compared, label %decide
compared:
  %c = call i32 @llvm.cttz.i32(i32 %c.remaining, i1 true)
  %c.less = sub i32 %c.remaining, 1
  %c.remaining.next = and i32 %c.remaining, %c.less
  %c.record = getelementptr [$thread.size x i8], ptr %first, i32 %c
  %c.key.at = getelementptr i8, ptr %c.record, i64 $thread.key
  %c.key = load i32, ptr %c.key.at
  %c.site.at = getelementptr i8, ptr %c.record, i64 $thread.fault_site
  %c.site = load i32, ptr %c.site.at
  %same.key = icmp eq i32 %c.key, %key
  %same.site = icmp eq i32 %c.site, %site
  %same = select i1 %masked, i1 %same.key, i1 %same.site
  %c.bit = shl i32 1, %c
  %c.member = select i1 %same, i32 %c.bit, i32 0
  %group.new = or i32 %group, %c.member
  br label %compare
decide:
  %outside = xor i32 %group, -1
  %remaining.next = and i32 %remaining, %outside
  %required = and i32 %key, %alive
  %missing = and i32 %required, %outside
  %all.arrived = icmp eq i32 %missing, 0
  %unmasked = xor i1 %masked, true
  %ready = or i1 %all.arrived, %unmasked
  br i1 %ready, label %copying, label %next_group
copying:
  %g.remaining = phi i32 [%group, %decide], [%g.remaining.next, %copy]
  %g.any = icmp ne i32 %g.remaining, 0
  br i1 %g.any, label %copy, label %resuming
copy:
  %g = call i32 @llvm.cttz.i32(i32 %g.remaining, i1 true)
  %g.less = sub i32 %g.remaining, 1
  %g.remaining.next = and i32 %g.remaining, %g.less
  %g.record = getelementptr [$thread.size x i8], ptr %first, i32 %g
  %value.at = getelementptr i8, ptr %g.record, i64 $thread.value
  %value = load i64, ptr %value.at
  %seen.at = getelementptr i8, ptr %g.record, i64 $thread.seen
  store i64 %value, ptr %seen.at
  %group.at = getelementptr i8, ptr %g.record, i64 $thread.group
  store i32 %group, ptr %group.at
  br label %copying
resuming:
  %r.remaining = phi i32 [%group, %copying], [%r.remaining.next, %resumed]
  %r.any = icmp ne i32 %r.remaining, 0
  br i1 %r.any, label %resume, label %next_group
resume:
  %r = call i32 @llvm.cttz.i32(i32 %r.remaining, i1 true)
  %r.less = sub i32 %r.remaining, 1
  %r.remaining.next = and i32 %r.remaining, %r.less
  %r.record = getelementptr [$thread.size x i8], ptr %first, i32 %r
  %has_fault = call i1 @resume_thread(ptr %ctx, ptr %r.record)
  br i1 %has_fault, label %fault, label %resumed
resumed:
  br label %resuming
fault:
  ret i32 $status.faulted
done:
  ret i32 %result
}

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
  %in_block = icmp ult i32 %start, %count
  br i1 %in_block, label %warp, label %done
warp:
  %remaining = sub i32 %count, %start
  %width = call i32 @llvm.umin.i32(i32 %remaining, i32 32)
  %first = getelementptr [$thread.size x i8], ptr %records, i32 %start
  %status = call i32 @resume_warp(ptr %ctx, ptr %first, i32 %width, i32 %state)
  %faulted = icmp eq i32 %status, $status.faulted
  br i1 %faulted, label %fault, label %continue
continue:
  %next = add i32 %start, 32
  %result.next = or i32 %result, %status
  br label %loop
fault:
  ret i32 $status.faulted
done:
  ret i32 %result
}

; Open the first barrier that enough threads have reached. Store in each record how many threads arrived, and for how
; many the predicate of `bar.red` is true. Threads that executed `bar.arrive` are counted in the context; those beyond the
; required number have arrived for the next time that the barrier opens.
define internal i32 @open_barriers(ptr %ctx) {
entry:
  %records.at = getelementptr i8, ptr %ctx, i64 $context.thread_records
  %records = load ptr, ptr %records.at
  %count.at = getelementptr i8, ptr %ctx, i64 $context.thread_count
  %count = load i32, ptr %count.at
  %arrivals.at = getelementptr i8, ptr %ctx, i64 $context.barrier_arrivals
  br label %counting_alive
counting_alive:
  %l = phi i32 [0, %entry], [%l.next, %counted_alive]
  %alive = phi i32 [0, %entry], [%alive.new, %counted_alive]
  %l.more = icmp ult i32 %l, %count
  br i1 %l.more, label %counted_alive, label %leaders
counted_alive:
  %l.record = getelementptr [$thread.size x i8], ptr %records, i32 %l
  %l.state.at = getelementptr i8, ptr %l.record, i64 $thread.state
  %l.state = load i32, ptr %l.state.at
  %l.alive = icmp ne i32 %l.state, $state.exited
  %l.alive.wide = zext i1 %l.alive to i32
  %alive.new = add i32 %alive, %l.alive.wide
  %l.next = add i32 %l, 1
  br label %counting_alive
leaders:
  %leader = phi i32 [0, %counting_alive], [%leader.next, %leader.check], [%leader.next, %decide]
  %leader.more = icmp ult i32 %leader, %count
  br i1 %leader.more, label %leader.check, label %closed
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
  %early.at = getelementptr [16 x i32], ptr %arrivals.at, i32 0, i32 %barrier
  %early = load i32, ptr %early.at
  %at_barrier = icmp eq i32 %state, $state.barrier
  br i1 %at_barrier, label %counting, label %leaders
counting:
  %c = phi i32 [0, %leader.check], [%c.next, %counted]
  %arrived = phi i32 [%early, %leader.check], [%arrived.new, %counted]
  %true.count = phi i32 [0, %leader.check], [%true.count.new, %counted]
  %c.more = icmp ult i32 %c, %count
  br i1 %c.more, label %counted, label %decide
counted:
  %c.arrived = call i32 @is_at_barrier(ptr %records, i32 %c, i32 %key)
  %c.record = getelementptr [$thread.size x i8], ptr %records, i32 %c
  %value.at = getelementptr i8, ptr %c.record, i64 $thread.value
  %value = load i32, ptr %value.at
  %c.true = mul i32 %c.arrived, %value
  %arrived.new = add i32 %arrived, %c.arrived
  %true.count.new = add i32 %true.count, %c.true
  %c.next = add i32 %c, 1
  br label %counting
decide:
  %no.count = icmp eq i32 %expected, 0
  %required = select i1 %no.count, i32 %alive, i32 %expected
  %enough = icmp uge i32 %arrived, %required
  br i1 %enough, label %subtract, label %leaders
subtract:
  %surplus = sub i32 %arrived, %required
  %early.rest = call i32 @llvm.umin.i32(i32 %surplus, i32 %early)
  store i32 %early.rest, ptr %early.at
  %check.at = getelementptr i8, ptr %ctx, i64 $context.check_barrier
  %check = load ptr, ptr %check.at
  %checked = icmp ne ptr %check, null
  %site.at = getelementptr i8, ptr %record, i64 $thread.fault_site
  %site = load i32, ptr %site.at
  %some.ended = icmp ult i32 %arrived, %count
  %incomplete = and i1 %some.ended, %no.count
  %reported = and i1 %incomplete, %checked
  br i1 %reported, label %report, label %releasing
report:
  call void %check(ptr %ctx, i32 %site, i32 -1, i32 %leader)
  br label %releasing
releasing:
  %g = phi i32 [0, %subtract], [0, %report], [%g.next, %released]
  %g.more = icmp ult i32 %g, %count
  br i1 %g.more, label %g.check, label %resuming
g.check:
  %g.arrived = call i32 @is_at_barrier(ptr %records, i32 %g, i32 %key)
  %g.member = icmp ne i32 %g.arrived, 0
  br i1 %g.member, label %release, label %released
release:
  %g.record = getelementptr [$thread.size x i8], ptr %records, i32 %g
  %seen.at = getelementptr i8, ptr %g.record, i64 $thread.seen
  %true.count.wide = zext i32 %true.count to i64
  store i64 %true.count.wide, ptr %seen.at
  %group.at = getelementptr i8, ptr %g.record, i64 $thread.group
  store i32 %arrived, ptr %group.at
  %g.site.at = getelementptr i8, ptr %g.record, i64 $thread.fault_site
  %g.site = load i32, ptr %g.site.at
  %elsewhere = icmp ne i32 %g.site, %site
  %divergent = and i1 %elsewhere, %checked
  br i1 %divergent, label %report.other, label %mark
report.other:
  call void %check(ptr %ctx, i32 %site, i32 %g.site, i32 %g)
  br label %mark
mark:
  ; Mark all before any is resumed: a resumed thread may reach the same barrier again.
  %g.state.at = getelementptr i8, ptr %g.record, i64 $thread.state
  store i32 $state.released, ptr %g.state.at
  br label %released
released:
  %g.next = add i32 %g, 1
  br label %releasing
resuming:
  %status = call i32 @ptxlink.resume_in_state(ptr %ctx, i32 $state.released)
  ret i32 %status
closed:
  ret i32 $status.finished
}

define internal i32 @is_at_barrier(ptr %records, i32 %thread, i32 %key) {
  %record = getelementptr [$thread.size x i8], ptr %records, i32 %thread
  %state.at = getelementptr i8, ptr %record, i64 $thread.state
  %state = load i32, ptr %state.at
  %key.at = getelementptr i8, ptr %record, i64 $thread.key
  %own.key = load i32, ptr %key.at
  %same = icmp eq i32 %own.key, %key
  %suspended = icmp eq i32 %state, $state.barrier
  %both = and i1 %same, %suspended
  %result = zext i1 %both to i32
  ret i32 %result
}

; Resume all threads in a state.
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
  %in_block = icmp ult i32 %thread, %count
  br i1 %in_block, label %check, label %done
check:
  %record = getelementptr [$thread.size x i8], ptr %records, i32 %thread
  %state.at = getelementptr i8, ptr %record, i64 $thread.state
  %own.state = load i32, ptr %state.at
  %next = add i32 %thread, 1
  %matches = icmp eq i32 %own.state, %state
  br i1 %matches, label %resume, label %loop
resume:
  %has_fault = call i1 @resume_thread(ptr %ctx, ptr %record)
  br i1 %has_fault, label %fault, label %loop
fault:
  ret i32 $status.faulted
done:
  ret i32 %result
}

; Run a block until it finishes, faults, waits at the grid barrier, or yields to other blocks. Each round resumes the
; complete groups of warp operations. If there is none, it resumes the threads at `activemask`; if there is none,
; it opens a barrier; if none can open, it resumes loops that have yielded.
define i32 @ptxlink.schedule(ptr %ctx) {
entry:
  br label %round
round:
  %warps = call i32 @resume_warps(ptr %ctx, i32 $state.warp)
  switch i32 %warps, label %converge [i32 $status.faulted, label %fault i32 $status.resumed, label %round]
converge:
  %active = call i32 @resume_warps(ptr %ctx, i32 $state.activemask)
  switch i32 %active, label %open [i32 $status.faulted, label %fault i32 $status.resumed, label %round]
open:
  %barriers = call i32 @open_barriers(ptr %ctx)
  switch i32 %barriers, label %loops [i32 $status.faulted, label %fault i32 $status.resumed, label %round]
loops:
  %yielded = call i32 @ptxlink.resume_in_state(ptr %ctx, i32 $state.yielded)
  switch i32 %yielded, label %finish [i32 $status.faulted, label %fault i32 $status.resumed, label %yielded.resumed]
yielded.resumed:
  ; In a cooperative launch, a loop may wait for another block.
  %cooperative.at = getelementptr i8, ptr %ctx, i64 $context.cooperative
  %cooperative = load i32, ptr %cooperative.at
  %independent = icmp eq i32 %cooperative, 0
  br i1 %independent, label %round, label %yield
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
  %in_block = icmp ult i32 %thread, %count
  br i1 %in_block, label %check, label %done
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

; ---- Entries, called by Python. Run %count blocks of the grid, beginning with number %first.
define i32 @ptxlink.run_grid(ptr %ctx, ptr %block, i64 %first, i64 %count, i32 %resume_mode) {
entry:
  call void @release_gil(ptr %ctx)
  %nctaid.at = getelementptr i8, ptr %ctx, i64 $context.nctaid
  %nx.narrow = load i32, ptr %nctaid.at
  %ny.at = getelementptr i32, ptr %nctaid.at, i64 1
  %ny.narrow = load i32, ptr %ny.at
  %nx = zext i32 %nx.narrow to i64
  %ny = zext i32 %ny.narrow to i64
  %ctaid.at = getelementptr i8, ptr %ctx, i64 $context.ctaid
  %end = add i64 %first, %count
  br label %loop
loop:
  %number = phi i64 [%first, %entry], [%next, %continue], [%next, %poll]
  %in_range = icmp ult i64 %number, %end
  br i1 %in_range, label %run, label %done
run:
  %x = urem i64 %number, %nx
  %row = udiv i64 %number, %nx
  %y = urem i64 %row, %ny
  %z = udiv i64 %row, %ny
  %x.narrow = trunc i64 %x to i32
  %y.narrow = trunc i64 %y to i32
  %z.narrow = trunc i64 %z to i32
  %y.at = getelementptr i32, ptr %ctaid.at, i64 1
  %z.at = getelementptr i32, ptr %ctaid.at, i64 2
  store i32 %x.narrow, ptr %ctaid.at
  store i32 %y.narrow, ptr %y.at
  store i32 %z.narrow, ptr %z.at
  %status = call i32 %block(ptr %ctx, i32 %resume_mode)
  %next = add i64 %number, 1
  %finished = icmp eq i32 %status, $status.finished
  br i1 %finished, label %continue, label %done
continue:
  %low.bits = and i64 %next, 255
  %poll.due = icmp eq i64 %low.bits, 0
  br i1 %poll.due, label %poll, label %loop
poll:
  %interrupted = call i1 @check_signals(ptr %ctx)
  br i1 %interrupted, label %done, label %loop
done:
  %result = phi i32 [$status.finished, %loop], [%status, %run], [$status.finished, %poll]
  call void @acquire_gil(ptr %ctx)
  ret i32 %result
}

; Call a device function for each element of arrays.
define i32 @ptxlink.run_elements(ptr %ctx, ptr %entry_point, i64 %address, i64 %count, i32 %resume_mode) {
entry:
  %arrays = inttoptr i64 %address to ptr
  call void @release_gil(ptr %ctx)
  br label %loop
loop:
  %first = phi i64 [0, %entry], [%end, %poll]
  %in_range = icmp ult i64 %first, %count
  br i1 %in_range, label %run, label %done
run:
  %chunk.end = add i64 %first, 65536
  %end = call i64 @llvm.smin.i64(i64 %chunk.end, i64 %count)
  %status = call i32 %entry_point(ptr %ctx, ptr %arrays, i64 %first, i64 %end)
  %finished = icmp eq i32 %status, $status.finished
  br i1 %finished, label %poll, label %done
poll:
  %interrupted = call i1 @check_signals(ptr %ctx)
  br i1 %interrupted, label %done, label %loop
done:
  %result = phi i32 [$status.finished, %loop], [%status, %run], [$status.finished, %poll]
  call void @acquire_gil(ptr %ctx)
  ret i32 %result
}
