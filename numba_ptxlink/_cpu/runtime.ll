; What the machine code of programs calls, and what calls it: faults, the search for a region, pauses, the lanes
; of a block that wait for each other, and the entries from Python. What begins with a dollar sign is a number of
; runtime.py: the place of a field of Context, Lane or Noted in bytes, or a member of State, Fault or Told.

declare i32 @clock_gettime(i32, ptr)

; ---- Faults: the first one counts.

define void @ptxlink.record_fault(ptr %ctx, i64 %kind, i64 %site, i64 %address, i64 %size) noinline cold {
  %noted.at = getelementptr i8, ptr %ctx, i64 $context.fault_record
  %noted = load ptr, ptr %noted.at
  %kind.at = getelementptr i8, ptr %noted, i64 $fault_record.kind
  %old = load i64, ptr %kind.at
  %first = icmp eq i64 %old, 0
  br i1 %first, label %keep, label %done
keep:
  %site.at = getelementptr i8, ptr %noted, i64 $fault_record.fault_site
  %address.at = getelementptr i8, ptr %noted, i64 $fault_record.address
  %size.at = getelementptr i8, ptr %noted, i64 $fault_record.size
  store i64 %kind, ptr %kind.at
  store i64 %site, ptr %site.at
  store i64 %address, ptr %address.at
  store i64 %size, ptr %size.at
  br label %done
done:
  ret void
}

define internal i1 @has_fault(ptr %ctx) {
  %noted.at = getelementptr i8, ptr %ctx, i64 $context.fault_record
  %noted = load ptr, ptr %noted.at
  %kind.at = getelementptr i8, ptr %noted, i64 $fault_record.kind
  %kind = load i64, ptr %kind.at
  %faulty = icmp ne i64 %kind, 0
  ret i1 %faulty
}

; ---- The region that an access is in, which is noted for the next time; or the fault.

define i1 @ptxlink.find_region(ptr %ctx, ptr %row, i64 %address, i64 %size, i64 %site, i1 %writes) noinline cold {
entry:
  %less = sub i64 %size, 1
  %rest = and i64 %address, %less
  %crooked = icmp ne i64 %rest, 0
  br i1 %crooked, label %bad, label %search
search:
  %regions.at = getelementptr i8, ptr %ctx, i64 $context.regions
  %regions = load ptr, ptr %regions.at
  %count.at = getelementptr i8, ptr %ctx, i64 $context.region_count
  %count = load i64, ptr %count.at
  br label %test
test:
  %index = phi i64 [0, %search], [%next, %other]
  %more = icmp ult i64 %index, %count
  br i1 %more, label %look, label %bad
look:
  %low.at = getelementptr [2 x i64], ptr %regions, i64 %index, i64 0
  %high.at = getelementptr [2 x i64], ptr %regions, i64 %index, i64 1
  %low = load i64, ptr %low.at
  %high = load i64, ptr %high.at
  %length = sub i64 %high, %low
  %enough = icmp uge i64 %length, %size
  %shorter = sub i64 %length, %size
  %distance = sub i64 %address, %low
  %inside = icmp ule i64 %distance, %shorter
  %there = and i1 %enough, %inside
  br i1 %there, label %found, label %other
other:
  %next = add i64 %index, 1
  br label %test
found:
  %writable.at = getelementptr i8, ptr %ctx, i64 $context.writable_count
  %writable = load i64, ptr %writable.at
  %fixed = icmp uge i64 %index, %writable
  %spoilt = and i1 %writes, %fixed
  br i1 %spoilt, label %bad, label %good
good:
  %row.room = getelementptr i64, ptr %row, i64 1
  %room = add i64 %shorter, 1
  store i64 %low, ptr %row
  store i64 %room, ptr %row.room
  ret i1 true
bad:
  %kind = phi i64 [$fault.misaligned, %entry], [$fault.access, %test], [$fault.read_only, %found]
  call void @ptxlink.record_fault(ptr %ctx, i64 %kind, i64 %site, i64 %address, i64 %size)
  ret i1 false
}

; ---- Python's lock: given away while code runs.

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

; ---- What is done now and then, so that Ctrl-C ends a launch: whether it does.

define internal i1 @check_signals(ptr %ctx) noinline cold {
  %check.at = getelementptr i8, ptr %ctx, i64 $context.check_signals
  %check = load ptr, ptr %check.at
  call void @acquire_gil(ptr %ctx)
  %told = call i32 %check()
  call void @release_gil(ptr %ctx)
  %interrupted = icmp ne i32 %told, 0
  ret i1 %interrupted
}

; A loop asks how many ways back it may take until the next time, 0 to end.
define i32 @ptxlink.check_step_limit(ptr %ctx, ptr %left.at, i64 %site, i32 %chunk) noinline cold {
entry:
  %left = load i64, ptr %left.at
  %over = icmp sle i64 %left, 0
  br i1 %over, label %bad, label %ask
ask:
  %stops = call i1 @check_signals(ptr %ctx)
  br i1 %stops, label %bad, label %go
go:
  %wide = zext i32 %chunk to i64
  %more = call i64 @llvm.smin.i64(i64 %left, i64 %wide)
  %rest = sub i64 %left, %more
  store i64 %rest, ptr %left.at
  %result = trunc i64 %more to i32
  ret i32 %result
bad:
  %kind = phi i64 [$fault.step_limit, %entry], [$fault.interrupted, %ask]
  call void @ptxlink.record_fault(ptr %ctx, i64 %kind, i64 %site, i64 0, i64 0)
  ret i32 0
}

; ---- What is printed: how many values, -1 where Python raised, which the caller of the entry finds then.

@numbers = internal constant [3 x i8] c"KK\00"

define i32 @ptxlink.print(ptr %ctx, i64 %form, i64 %values) {
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
  %returned = call ptr (ptr, ptr, ...) %call(ptr %print, ptr @numbers, i64 %form, i64 %values)
  %raised = icmp eq ptr %returned, null
  br i1 %raised, label %done, label %good
good:
  %wide = call i64 %number(ptr %returned)
  %narrow = trunc i64 %wide to i32
  call void %drop(ptr %returned)
  br label %done
done:
  %result = phi i32 [-1, %entry], [%narrow, %good]
  call void @release_gil(ptr %ctx)
  ret i32 %result
}

; ---- Nanoseconds, and memory of the heap.

define i64 @ptxlink.time() {
  %time = alloca [2 x i64]
  %told = call i32 @clock_gettime(i32 0, ptr %time)
  %seconds = load i64, ptr %time
  %rest.at = getelementptr [2 x i64], ptr %time, i64 0, i64 1
  %rest = load i64, ptr %rest.at
  %scaled = mul i64 %seconds, 1000000000
  %result = add i64 %scaled, %rest
  ret i64 %result
}

; The heap is one word: how many allocations live, above 40 bits of where the next one begins. When none lives,
; the next one begins at the start again.
define i64 @ptxlink.allocate(ptr %ctx, i64 %wanted) {
entry:
  %heap.at = getelementptr i8, ptr %ctx, i64 $context.heap
  %heap = load ptr, ptr %heap.at
  %room.at = getelementptr i64, ptr %heap, i64 1
  %room = load i64, ptr %room.at
  %start.at = getelementptr i64, ptr %heap, i64 2
  %start = load i64, ptr %start.at
  %some = call i64 @llvm.umax.i64(i64 %wanted, i64 1)
  %above = add i64 %some, 15
  %size = and i64 %above, -16
  %one = add i64 %size, 1099511627776
  %plain = icmp ule i64 %wanted, %room
  %first = load atomic i64, ptr %heap monotonic, align 8
  br i1 %plain, label %test, label %none
test:
  %old = phi i64 [%first, %entry], [%now, %take]
  %place = and i64 %old, 1099511627775
  %end = add i64 %place, %size
  %fits = icmp ule i64 %end, %room
  br i1 %fits, label %take, label %none
take:
  %new = add i64 %old, %one
  %pair = cmpxchg ptr %heap, i64 %old, i64 %new seq_cst seq_cst
  %now = extractvalue {i64, i1} %pair, 0
  %done = extractvalue {i64, i1} %pair, 1
  br i1 %done, label %good, label %test
good:
  %result = add i64 %start, %place
  ret i64 %result
none:
  ret i64 0
}

define void @ptxlink.free(ptr %ctx, i64 %address) {
entry:
  %heap.at = getelementptr i8, ptr %ctx, i64 $context.heap
  %heap = load ptr, ptr %heap.at
  %first = load atomic i64, ptr %heap monotonic, align 8
  %null = icmp eq i64 %address, 0
  br i1 %null, label %ended, label %test
test:
  %old = phi i64 [%first, %entry], [%now, %test]
  %fewer = sub i64 %old, 1099511627776
  %none = icmp ult i64 %fewer, 1099511627776
  %new = select i1 %none, i64 0, i64 %fewer
  %pair = cmpxchg ptr %heap, i64 %old, i64 %new seq_cst seq_cst
  %now = extractvalue {i64, i1} %pair, 0
  %done = extractvalue {i64, i1} %pair, 1
  br i1 %done, label %ended, label %test
ended:
  ret void
}

; ---- What the lanes of a warp have given: which of those in %lanes gave %value, and a reduction of all.

define i32 @ptxlink.ballot(ptr %first, i32 %lanes, i64 %value) {
entry:
  br label %test
test:
  %left = phi i32 [%lanes, %entry], [%rest, %look]
  %total = phi i32 [0, %entry], [%sum, %look]
  %some = icmp ne i32 %left, 0
  br i1 %some, label %look, label %done
look:
  %lane = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %less = sub i32 %left, 1
  %rest = and i32 %left, %less
  %record = getelementptr [$thread.size x i8], ptr %first, i32 %lane
  %seen.at = getelementptr i8, ptr %record, i64 $thread.seen
  %seen = load i64, ptr %seen.at
  %same = icmp eq i64 %seen, %value
  %bit = zext i1 %same to i32
  %moved = shl i32 %bit, %lane
  %sum = or i32 %total, %moved
  br label %test
done:
  ret i32 %total
}

@starts = internal constant [8 x i32] [i32 0, i32 -1, i32 0, i32 0, i32 2147483647, i32 -2147483648, i32 -1, i32 0]

define i32 @ptxlink.reduce(ptr %first, i32 %lanes, i32 %how) {
entry:
  %start.at = getelementptr [8 x i32], ptr @starts, i32 0, i32 %how
  %start = load i32, ptr %start.at
  br label %test
test:
  %left = phi i32 [%lanes, %entry], [%rest, %joined]
  %total = phi i32 [%start, %entry], [%new, %joined]
  %some = icmp ne i32 %left, 0
  br i1 %some, label %look, label %done
look:
  %lane = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %less = sub i32 %left, 1
  %rest = and i32 %left, %less
  %record = getelementptr [$thread.size x i8], ptr %first, i32 %lane
  %seen.at = getelementptr i8, ptr %record, i64 $thread.seen
  %value = load i32, ptr %seen.at
  switch i32 %how, label %add [i32 1, label %and i32 2, label %or i32 3, label %xor i32 4, label %smin
                               i32 5, label %smax i32 6, label %umin i32 7, label %umax]
add:
  %r0 = add i32 %total, %value
  br label %joined
and:
  %r1 = and i32 %total, %value
  br label %joined
or:
  %r2 = or i32 %total, %value
  br label %joined
xor:
  %r3 = xor i32 %total, %value
  br label %joined
smin:
  %r4 = call i32 @llvm.smin.i32(i32 %total, i32 %value)
  br label %joined
smax:
  %r5 = call i32 @llvm.smax.i32(i32 %total, i32 %value)
  br label %joined
umin:
  %r6 = call i32 @llvm.umin.i32(i32 %total, i32 %value)
  br label %joined
umax:
  %r7 = call i32 @llvm.umax.i32(i32 %total, i32 %value)
  br label %joined
joined:
  %new = phi i32 [%r0, %add], [%r1, %and], [%r2, %or], [%r3, %xor], [%r4, %smin], [%r5, %smax], [%r6, %umin], [%r7, %umax]
  br label %test
done:
  ret i32 %total
}

; ---- Lanes that wait: each is a coroutine, with a record.

define internal i1 @resume_thread(ptr %ctx, ptr %record) {
  %number.at = getelementptr i8, ptr %record, i64 $thread.number
  %number = load i32, ptr %number.at
  %current.at = getelementptr i8, ptr %ctx, i64 $context.current_thread
  store i32 %number, ptr %current.at
  %handle.at = getelementptr i8, ptr %record, i64 $thread.handle
  %handle = load ptr, ptr %handle.at
  call void @llvm.coro.resume(ptr %handle)
  %faulty = call i1 @has_fault(ptr %ctx)
  ret i1 %faulty
}

; Execute each lane of a block to the first place where it waits.
define i32 @ptxlink.start_threads(ptr %ctx, ptr %ramp) {
entry:
  %lanes.at = getelementptr i8, ptr %ctx, i64 $context.thread_records
  %lanes = load ptr, ptr %lanes.at
  %count.at = getelementptr i8, ptr %ctx, i64 $context.thread_count
  %count = load i32, ptr %count.at
  %found.at = getelementptr i8, ptr %ctx, i64 $context.region_cache
  %found = load ptr, ptr %found.at
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
  br label %test
test:
  %lane = phi i32 [0, %entry], [%next, %step]
  %more = icmp ult i32 %lane, %count
  br i1 %more, label %step, label %done
step:
  %x = urem i32 %lane, %nx
  %row = udiv i32 %lane, %nx
  %y = urem i32 %row, %ny
  %z = udiv i32 %row, %ny
  %wide = zext i32 %lane to i64
  %own.at = mul i64 %wide, %local_size
  %own = getelementptr i8, ptr %local, i64 %own.at
  %limit = getelementptr i8, ptr %own, i64 %local_size
  %memory.at = mul i64 %wide, %frame_size
  %memory = getelementptr i8, ptr %frames, i64 %memory.at
  %record = getelementptr [$thread.size x i8], ptr %lanes, i32 %lane
  %number.at = getelementptr i8, ptr %record, i64 $thread.number
  store i32 %lane, ptr %number.at
  store i32 %lane, ptr %current.at
  %handle = call i64 %ramp(ptr %ctx, ptr %found, ptr %own, ptr %limit, i32 %x, i32 %y, i32 %z, ptr %params, ptr %record, ptr %memory)
  %handle.at = getelementptr i8, ptr %record, i64 $thread.handle
  store i64 %handle, ptr %handle.at
  %faulty = call i1 @has_fault(ptr %ctx)
  %next = add i32 %lane, 1
  br i1 %faulty, label %bad, label %test
bad:
  ret i32 $status.faulted
done:
  ret i32 $status.finished
}

; Let lanes of a warp go on that wait in a way: those with one mask that are all there, or those at one place.
define internal i32 @resume_warp(ptr %ctx, ptr %first, i32 %width, i32 %state) {
entry:
  %masked = icmp eq i32 %state, $state.warp
  br label %scan
scan:
  %s = phi i32 [0, %entry], [%s.next, %scanned]
  %alive = phi i32 [0, %entry], [%alive.new, %scanned]
  %waiting = phi i32 [0, %entry], [%waiting.new, %scanned]
  %s.more = icmp ult i32 %s, %width
  br i1 %s.more, label %scanned, label %groups
scanned:
  %s.record = getelementptr [$thread.size x i8], ptr %first, i32 %s
  %s.state.at = getelementptr i8, ptr %s.record, i64 $thread.state
  %s.state = load i32, ptr %s.state.at
  %bit = shl i32 1, %s
  %ended = icmp eq i32 %s.state, $state.exited
  %lives = select i1 %ended, i32 0, i32 %bit
  %alive.new = or i32 %alive, %lives
  %here = icmp eq i32 %s.state, %state
  %waits = select i1 %here, i32 %bit, i32 0
  %waiting.new = or i32 %waiting, %waits
  %s.next = add i32 %s, 1
  br label %scan
groups:
  %left = phi i32 [%waiting, %scan], [%left.rest, %judge], [%left.rest, %resuming]
  %ran = phi i32 [$status.finished, %scan], [%ran, %judge], [$status.resumed, %resuming]
  %some = icmp ne i32 %left, 0
  br i1 %some, label %gather, label %done
gather:
  %leader = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %leader.record = getelementptr [$thread.size x i8], ptr %first, i32 %leader
  %key.at = getelementptr i8, ptr %leader.record, i64 $thread.key
  %key = load i32, ptr %key.at
  %site.at = getelementptr i8, ptr %leader.record, i64 $thread.fault_site
  %site = load i32, ptr %site.at
  br label %compare
compare:
  %c.left = phi i32 [%left, %gather], [%c.rest, %compared]
  %group = phi i32 [0, %gather], [%group.new, %compared]
  %c.some = icmp ne i32 %c.left, 0
  br i1 %c.some, label %compared, label %judge
compared:
  %c = call i32 @llvm.cttz.i32(i32 %c.left, i1 true)
  %c.less = sub i32 %c.left, 1
  %c.rest = and i32 %c.left, %c.less
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
judge:
  %outside = xor i32 %group, -1
  %left.rest = and i32 %left, %outside
  %wanted = and i32 %key, %alive
  %missing = and i32 %wanted, %outside
  %complete = icmp eq i32 %missing, 0
  %unmasked = xor i1 %masked, true
  %ready = or i1 %complete, %unmasked
  br i1 %ready, label %giving, label %groups
giving:
  %g.left = phi i32 [%group, %judge], [%g.rest, %give]
  %g.some = icmp ne i32 %g.left, 0
  br i1 %g.some, label %give, label %resuming
give:
  %g = call i32 @llvm.cttz.i32(i32 %g.left, i1 true)
  %g.less = sub i32 %g.left, 1
  %g.rest = and i32 %g.left, %g.less
  %g.record = getelementptr [$thread.size x i8], ptr %first, i32 %g
  %value.at = getelementptr i8, ptr %g.record, i64 $thread.value
  %value = load i64, ptr %value.at
  %seen.at = getelementptr i8, ptr %g.record, i64 $thread.seen
  store i64 %value, ptr %seen.at
  %together.at = getelementptr i8, ptr %g.record, i64 $thread.group
  store i32 %group, ptr %together.at
  br label %giving
resuming:
  %r.left = phi i32 [%group, %giving], [%r.rest, %resumed]
  %r.some = icmp ne i32 %r.left, 0
  br i1 %r.some, label %going, label %groups
going:
  %r = call i32 @llvm.cttz.i32(i32 %r.left, i1 true)
  %r.less = sub i32 %r.left, 1
  %r.rest = and i32 %r.left, %r.less
  %r.record = getelementptr [$thread.size x i8], ptr %first, i32 %r
  %faulty = call i1 @resume_thread(ptr %ctx, ptr %r.record)
  br i1 %faulty, label %bad, label %resumed
resumed:
  br label %resuming
bad:
  ret i32 $status.faulted
done:
  ret i32 %ran
}

define internal i32 @resume_warps(ptr %ctx, i32 %state) {
entry:
  %lanes.at = getelementptr i8, ptr %ctx, i64 $context.thread_records
  %lanes = load ptr, ptr %lanes.at
  %count.at = getelementptr i8, ptr %ctx, i64 $context.thread_count
  %count = load i32, ptr %count.at
  br label %test
test:
  %start = phi i32 [0, %entry], [%next, %good]
  %ran = phi i32 [$status.finished, %entry], [%both, %good]
  %more = icmp ult i32 %start, %count
  br i1 %more, label %step, label %done
step:
  %rest = sub i32 %count, %start
  %width = call i32 @llvm.umin.i32(i32 %rest, i32 32)
  %first = getelementptr [$thread.size x i8], ptr %lanes, i32 %start
  %told = call i32 @resume_warp(ptr %ctx, ptr %first, i32 %width, i32 %state)
  %bad = icmp eq i32 %told, $status.faulted
  br i1 %bad, label %fault, label %good
good:
  %next = add i32 %start, 32
  %both = or i32 %ran, %told
  br label %test
fault:
  ret i32 $status.faulted
done:
  ret i32 %ran
}

; Open a barrier that enough lanes have reached, and tell each of them how many came, and how many gave 1.
define internal i32 @open_barriers(ptr %ctx) {
entry:
  %lanes.at = getelementptr i8, ptr %ctx, i64 $context.thread_records
  %lanes = load ptr, ptr %lanes.at
  %count.at = getelementptr i8, ptr %ctx, i64 $context.thread_count
  %count = load i32, ptr %count.at
  br label %living
living:
  %l = phi i32 [0, %entry], [%l.next, %lived]
  %alive = phi i32 [0, %entry], [%alive.new, %lived]
  %l.more = icmp ult i32 %l, %count
  br i1 %l.more, label %lived, label %leaders
lived:
  %l.record = getelementptr [$thread.size x i8], ptr %lanes, i32 %l
  %l.state.at = getelementptr i8, ptr %l.record, i64 $thread.state
  %l.state = load i32, ptr %l.state.at
  %lives = icmp ne i32 %l.state, $state.exited
  %lives.wide = zext i1 %lives to i32
  %alive.new = add i32 %alive, %lives.wide
  %l.next = add i32 %l, 1
  br label %living
leaders:
  %leader = phi i32 [0, %living], [%leader.next, %lead], [%leader.next, %judge]
  %leader.more = icmp ult i32 %leader, %count
  br i1 %leader.more, label %lead, label %none
lead:
  %record = getelementptr [$thread.size x i8], ptr %lanes, i32 %leader
  %state.at = getelementptr i8, ptr %record, i64 $thread.state
  %state = load i32, ptr %state.at
  %key.at = getelementptr i8, ptr %record, i64 $thread.key
  %key = load i32, ptr %key.at
  %wanted.at = getelementptr i8, ptr %record, i64 $thread.expected_count
  %wanted = load i32, ptr %wanted.at
  %leader.next = add i32 %leader, 1
  %waits = icmp eq i32 %state, $state.barrier
  br i1 %waits, label %counting, label %leaders
counting:
  %c = phi i32 [0, %lead], [%c.next, %counted]
  %came = phi i32 [0, %lead], [%came.new, %counted]
  %hits = phi i32 [0, %lead], [%hits.new, %counted]
  %c.more = icmp ult i32 %c, %count
  br i1 %c.more, label %counted, label %judge
counted:
  %c.there = call i32 @is_at_barrier(ptr %lanes, i32 %c, i32 %key)
  %c.record = getelementptr [$thread.size x i8], ptr %lanes, i32 %c
  %value.at = getelementptr i8, ptr %c.record, i64 $thread.value
  %value = load i32, ptr %value.at
  %hit = mul i32 %c.there, %value
  %came.new = add i32 %came, %c.there
  %hits.new = add i32 %hits, %hit
  %c.next = add i32 %c, 1
  br label %counting
judge:
  %all = icmp eq i32 %wanted, 0
  %needed = select i1 %all, i32 %alive, i32 %wanted
  %enough = icmp uge i32 %came, %needed
  br i1 %enough, label %giving, label %leaders
giving:
  %g = phi i32 [0, %judge], [%g.next, %given]
  %g.more = icmp ult i32 %g, %count
  br i1 %g.more, label %look, label %resuming
look:
  %g.there = call i32 @is_at_barrier(ptr %lanes, i32 %g, i32 %key)
  %g.is = icmp ne i32 %g.there, 0
  br i1 %g.is, label %give, label %given
give:
  %g.record = getelementptr [$thread.size x i8], ptr %lanes, i32 %g
  %seen.at = getelementptr i8, ptr %g.record, i64 $thread.seen
  %hits.wide = zext i32 %hits to i64
  store i64 %hits.wide, ptr %seen.at
  %together.at = getelementptr i8, ptr %g.record, i64 $thread.group
  store i32 %came, ptr %together.at
  ; Lanes that go on may come to the barrier again, before others have left it.
  %g.state.at = getelementptr i8, ptr %g.record, i64 $thread.state
  store i32 $state.released, ptr %g.state.at
  br label %given
given:
  %g.next = add i32 %g, 1
  br label %giving
resuming:
  %told = call i32 @ptxlink.resume_in_state(ptr %ctx, i32 $state.released)
  ret i32 %told
none:
  ret i32 $status.finished
}

define internal i32 @is_at_barrier(ptr %lanes, i32 %lane, i32 %key) {
  %record = getelementptr [$thread.size x i8], ptr %lanes, i32 %lane
  %state.at = getelementptr i8, ptr %record, i64 $thread.state
  %state = load i32, ptr %state.at
  %key.at = getelementptr i8, ptr %record, i64 $thread.key
  %own = load i32, ptr %key.at
  %same = icmp eq i32 %own, %key
  %waits = icmp eq i32 %state, $state.barrier
  %both = and i1 %same, %waits
  %result = zext i1 %both to i32
  ret i32 %result
}

; Let all lanes go on that are in a state.
define i32 @ptxlink.resume_in_state(ptr %ctx, i32 %state) {
entry:
  %lanes.at = getelementptr i8, ptr %ctx, i64 $context.thread_records
  %lanes = load ptr, ptr %lanes.at
  %count.at = getelementptr i8, ptr %ctx, i64 $context.thread_count
  %count = load i32, ptr %count.at
  br label %test
test:
  %lane = phi i32 [0, %entry], [%next, %step], [%next, %go]
  %ran = phi i32 [$status.finished, %entry], [%ran, %step], [$status.resumed, %go]
  %more = icmp ult i32 %lane, %count
  br i1 %more, label %step, label %done
step:
  %record = getelementptr [$thread.size x i8], ptr %lanes, i32 %lane
  %own.at = getelementptr i8, ptr %record, i64 $thread.state
  %own = load i32, ptr %own.at
  %next = add i32 %lane, 1
  %waits = icmp eq i32 %own, %state
  br i1 %waits, label %go, label %test
go:
  %faulty = call i1 @resume_thread(ptr %ctx, ptr %record)
  br i1 %faulty, label %bad, label %test
bad:
  ret i32 $status.faulted
done:
  ret i32 %ran
}

; Execute a block until it ends, has a fault, waits for the grid, or spins. A round lets each warp go on whose
; lanes are all where they wait. If none is, lanes that came to the same place are told who came together; then a
; barrier opens that all have reached; then loops that gave way go on.
define i32 @ptxlink.schedule(ptr %ctx) {
entry:
  br label %round
round:
  %warps = call i32 @resume_warps(ptr %ctx, i32 $state.warp)
  switch i32 %warps, label %converge [i32 $status.faulted, label %bad i32 $status.resumed, label %round]
converge:
  %came = call i32 @resume_warps(ptr %ctx, i32 $state.activemask)
  switch i32 %came, label %open [i32 $status.faulted, label %bad i32 $status.resumed, label %round]
open:
  %opened = call i32 @open_barriers(ptr %ctx)
  switch i32 %opened, label %loops [i32 $status.faulted, label %bad i32 $status.resumed, label %round]
loops:
  %woken = call i32 @ptxlink.resume_in_state(ptr %ctx, i32 $state.yielded)
  switch i32 %woken, label %rest [i32 $status.faulted, label %bad i32 $status.resumed, label %spin]
spin:
  ; What these lanes wait for may be in another block.
  %cooperative.at = getelementptr i8, ptr %ctx, i64 $context.cooperative
  %cooperative = load i32, ptr %cooperative.at
  %alone = icmp eq i32 %cooperative, 0
  br i1 %alone, label %round, label %spins
spins:
  ret i32 $status.yielded
rest:
  %lanes.at = getelementptr i8, ptr %ctx, i64 $context.thread_records
  %lanes = load ptr, ptr %lanes.at
  %count.at = getelementptr i8, ptr %ctx, i64 $context.thread_count
  %count = load i32, ptr %count.at
  br label %test
test:
  %lane = phi i32 [0, %rest], [%next, %step], [%next, %grid]
  %told = phi i32 [$status.finished, %rest], [%told, %step], [$status.at_grid_barrier, %grid]
  %more = icmp ult i32 %lane, %count
  br i1 %more, label %step, label %done
step:
  %record = getelementptr [$thread.size x i8], ptr %lanes, i32 %lane
  %state.at = getelementptr i8, ptr %record, i64 $thread.state
  %state = load i32, ptr %state.at
  %next = add i32 %lane, 1
  switch i32 %state, label %stuck [i32 $state.exited, label %test i32 $state.grid_barrier, label %grid]
grid:
  br label %test
stuck:
  %current.at = getelementptr i8, ptr %ctx, i64 $context.current_thread
  store i32 %lane, ptr %current.at
  %site.at = getelementptr i8, ptr %record, i64 $thread.fault_site
  %site = load i32, ptr %site.at
  %site.wide = zext i32 %site to i64
  call void @ptxlink.record_fault(ptr %ctx, i64 $fault.deadlock, i64 %site.wide, i64 0, i64 0)
  br label %bad
bad:
  ret i32 $status.faulted
done:
  ret i32 %told
}

; ---- Entries. Other threads of Python run meanwhile.

; Execute blocks of a grid from one on.
define i32 @ptxlink.run_grid(ptr %ctx, ptr %block, i64 %first, i64 %count, i32 %go) {
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
  br label %test
test:
  %number = phi i64 [%first, %entry], [%next, %on], [%next, %ask]
  %more = icmp ult i64 %number, %end
  br i1 %more, label %step, label %done
step:
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
  %told = call i32 %block(ptr %ctx, i32 %go)
  %next = add i64 %number, 1
  %ended = icmp eq i32 %told, $status.finished
  br i1 %ended, label %on, label %done
on:
  %part = and i64 %next, 255
  %due = icmp eq i64 %part, 0
  br i1 %due, label %ask, label %test
ask:
  %stops = call i1 @check_signals(ptr %ctx)
  br i1 %stops, label %done, label %test
done:
  %result = phi i32 [$status.finished, %test], [%told, %step], [$status.finished, %ask]
  call void @acquire_gil(ptr %ctx)
  ret i32 %result
}

; Call a function for the elements of arrays.
define i32 @ptxlink.run_elements(ptr %ctx, ptr %many, i64 %place, i64 %count, i32 %go) {
entry:
  %arrays = inttoptr i64 %place to ptr
  call void @release_gil(ptr %ctx)
  br label %test
test:
  %first = phi i64 [0, %entry], [%end, %ask]
  %more = icmp ult i64 %first, %count
  br i1 %more, label %step, label %done
step:
  %beyond = add i64 %first, 65536
  %end = call i64 @llvm.smin.i64(i64 %beyond, i64 %count)
  %told = call i32 %many(ptr %ctx, ptr %arrays, i64 %first, i64 %end)
  %ended = icmp eq i32 %told, $status.finished
  br i1 %ended, label %ask, label %done
ask:
  %stops = call i1 @check_signals(ptr %ctx)
  br i1 %stops, label %done, label %test
done:
  %result = phi i32 [$status.finished, %test], [%told, %step], [$status.finished, %ask]
  call void @acquire_gil(ptr %ctx)
  ret i32 %result
}
