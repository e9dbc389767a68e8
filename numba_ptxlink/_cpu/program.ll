; Part of the module of each program: declarations of functions in `runtime.ll`, and helper functions that instructions
; are made of.

declare void @ptxlink.record_fault(ptr, i64, i64, i64, i64) cold
declare i1 @ptxlink.find_region(ptr, ptr, i64, i64, i64, i64, i1) cold
declare i32 @ptxlink.check_step_limit(ptr, ptr, i64, i32) cold
declare i32 @ptxlink.print(ptr, i64, i64)
declare i64 @ptxlink.time()
declare i64 @ptxlink.allocate(ptr, i64)
declare void @ptxlink.free(ptr, i64)
declare i32 @ptxlink.ballot(ptr, i32, i64)
declare i32 @ptxlink.reduce(ptr, i32, i32)
declare i32 @ptxlink.start_threads(ptr, ptr)
declare i32 @ptxlink.resume_in_state(ptr, i32)
declare i32 @ptxlink.schedule(ptr)

; Bit fields: the smaller of two counts, and a mask with this number of ones.

define internal i128 @ptxlink.clamp(i32 %count, i32 %limit) alwaysinline {
  %least = call i32 @llvm.umin.i32(i32 %count, i32 %limit)
  %result = zext i32 %least to i128
  ret i128 %result
}
define internal i128 @ptxlink.ones(i32 %count, i32 %limit) alwaysinline {
  %size = call i128 @ptxlink.clamp(i32 %count, i32 %limit)
  %above = shl i128 1, %size
  %result = sub i128 %above, 1
  ret i128 %result
}

; `fns`: the position of the n-th bit that is set, counted from %base: upwards if %offset (n) is positive, downwards if
; it is negative. With an offset of 0, it is the bit at %base itself. All ones if there is no such bit.

define internal i32 @ptxlink.find_nth_set(i32 %mask, i32 %base, i32 %offset) noinline {
entry:
  %zero = icmp eq i32 %offset, 0
  %one = zext i1 %zero to i32
  %count.signed = call i32 @llvm.abs.i32(i32 %offset, i1 false)
  %count = add i32 %count.signed, %one
  %negative = icmp slt i32 %offset, 0
  %step = select i1 %negative, i32 -1, i32 1
  %position.place = alloca i32
  %remaining.place = alloca i32
  store i32 %base, ptr %position.place
  store i32 %count, ptr %remaining.place
  br label %next
next:
  %position = load i32, ptr %position.place
  %inside = icmp ult i32 %position, 32
  br i1 %inside, label %test, label %none
test:
  %moved = lshr i32 %mask, %position
  %bit = and i32 %moved, 1
  %remaining = load i32, ptr %remaining.place
  %remaining.next = sub i32 %remaining, %bit
  store i32 %remaining.next, ptr %remaining.place
  %found = icmp eq i32 %remaining.next, 0
  br i1 %found, label %done, label %skip
done:
  ret i32 %position
skip:
  %position.next = add i32 %position, %step
  store i32 %position.next, ptr %position.place
  br i1 %zero, label %none, label %next
none:
  ret i32 -1
}

; Packed integers: extend the byte or the half at a bit; `permute` returns the byte of eight that a nibble of the
; selectors names, or copies of its sign, at its position in the result.

define internal i32 @ptxlink.zext.byte(i32 %x, i32 %from) alwaysinline {
  %moved = lshr i32 %x, %from
  %result = and i32 %moved, 255
  ret i32 %result
}
define internal i32 @ptxlink.sext.byte(i32 %x, i32 %from) alwaysinline {
  %moved = lshr i32 %x, %from
  %byte = trunc i32 %moved to i8
  %result = sext i8 %byte to i32
  ret i32 %result
}
define internal i32 @ptxlink.zext.half(i32 %x, i32 %from) alwaysinline {
  %moved = lshr i32 %x, %from
  %result = and i32 %moved, 65535
  ret i32 %result
}
define internal i32 @ptxlink.sext.half(i32 %x, i32 %from) alwaysinline {
  %moved = lshr i32 %x, %from
  %half = trunc i32 %moved to i16
  %result = sext i16 %half to i32
  ret i32 %result
}
define internal i32 @ptxlink.permute(i64 %bytes, i32 %selectors, i32 %place) alwaysinline {
  %nibble.place = lshr i32 %place, 1
  %nibble = lshr i32 %selectors, %nibble.place
  %index = and i32 %nibble, 7
  %index.bits = shl i32 %index, 3
  %from = zext i32 %index.bits to i64
  %moved = lshr i64 %bytes, %from
  %byte = trunc i64 %moved to i8
  %sign = ashr i8 %byte, 7
  %flag = and i32 %nibble, 8
  %repeats = icmp ne i32 %flag, 0
  %chosen = select i1 %repeats, i8 %sign, i8 %byte
  %wide = zext i8 %chosen to i32
  %result = shl i32 %wide, %place
  ret i32 %result
}

; Look-up tables: `mask` copies one bit of a table to all bits; `choose` takes each bit of one value or of the other.

define internal i32 @ptxlink.mask(i32 %table, i32 %index) alwaysinline {
  %moved = lshr i32 %table, %index
  %bit = and i32 %moved, 1
  %result = sub i32 0, %bit
  ret i32 %result
}
define internal i32 @ptxlink.choose(i32 %selector, i32 %zero, i32 %one) alwaysinline {
  %differs = xor i32 %zero, %one
  %changes = and i32 %differs, %selector
  %result = xor i32 %zero, %changes
  ret i32 %result
}

; Count arrivals at a barrier of `mbarrier`; return its state before, see async_copies.py. The last pending arrival of a
; phase begins the next one. Threads of a block run one at a time, so that no atomic access is needed.

define internal i64 @ptxlink.mbarrier.arrive(ptr %barrier, i32 %arrivals, i1 %drops) {
  %old = load i64, ptr %barrier
  %count = zext i32 %arrivals to i64
  %dropped = select i1 %drops, i64 %count, i64 0
  %dropped.field = shl i64 %dropped, 20
  %reduced = sub i64 %old, %dropped.field
  %less = sub i64 %reduced, %count
  %pending = and i64 %less, 1048575
  %complete = icmp eq i64 %pending, 0
  %expected.field = lshr i64 %less, 20
  %expected = and i64 %expected.field, 1048575
  %restarted = add i64 %less, %expected
  %next = add i64 %restarted, 1099511627776
  %new = select i1 %complete, i64 %next, i64 %less
  store i64 %new, ptr %barrier
  ret i64 %old
}

; Minimum and maximum. LLVM 20's intrinsics return the wrong operand if one is subnormal. Zeros compare equal, so
; their sign bits are combined: -0 is less than +0.

define internal float @ptxlink.min.f32(float %a, float %b) alwaysinline {
  %first = fcmp olt float %a, %b
  %same = fcmp oeq float %a, %b
  %none = fcmp uno float %b, %b
  %keep = or i1 %first, %none
  %bits.a = bitcast float %a to i32
  %bits.b = bitcast float %b to i32
  %both = or i32 %bits.a, %bits.b
  %equal = bitcast i32 %both to float
  %other = select i1 %keep, float %a, float %b
  %result = select i1 %same, float %equal, float %other
  ret float %result
}
define internal double @ptxlink.min.f64(double %a, double %b) alwaysinline {
  %first = fcmp olt double %a, %b
  %same = fcmp oeq double %a, %b
  %none = fcmp uno double %b, %b
  %keep = or i1 %first, %none
  %bits.a = bitcast double %a to i64
  %bits.b = bitcast double %b to i64
  %both = or i64 %bits.a, %bits.b
  %equal = bitcast i64 %both to double
  %other = select i1 %keep, double %a, double %b
  %result = select i1 %same, double %equal, double %other
  ret double %result
}
define internal float @ptxlink.max.f32(float %a, float %b) alwaysinline {
  %first = fcmp ogt float %a, %b
  %same = fcmp oeq float %a, %b
  %none = fcmp uno float %b, %b
  %keep = or i1 %first, %none
  %bits.a = bitcast float %a to i32
  %bits.b = bitcast float %b to i32
  %both = and i32 %bits.a, %bits.b
  %equal = bitcast i32 %both to float
  %other = select i1 %keep, float %a, float %b
  %result = select i1 %same, float %equal, float %other
  ret float %result
}
define internal double @ptxlink.max.f64(double %a, double %b) alwaysinline {
  %first = fcmp ogt double %a, %b
  %same = fcmp oeq double %a, %b
  %none = fcmp uno double %b, %b
  %keep = or i1 %first, %none
  %bits.a = bitcast double %a to i64
  %bits.b = bitcast double %b to i64
  %both = and i64 %bits.a, %bits.b
  %equal = bitcast i64 %both to double
  %other = select i1 %keep, double %a, double %b
  %result = select i1 %same, double %equal, double %other
  ret double %result
}

; `redux` of floats, on the operands of the threads of the mask %lanes; %first is the record of lane 0. A NaN is the result
; only if all operands are NaN, or with %nan if one is.

define internal i32 @ptxlink.reduce.f32(ptr %first, i32 %lanes, i1 %is_max, i1 %absolute, i1 %nan) {
entry:
  br label %next
next:
  %remaining = phi i32 [%lanes, %entry], [%remaining.next, %next]
  %result = phi float [0x7FF8000000000000, %entry], [%result.next, %next]
  %has_nan = phi i1 [false, %entry], [%has_nan.next, %next]
  %lane = call i32 @llvm.cttz.i32(i32 %remaining, i1 true)
  %minus.one = sub i32 %remaining, 1
  %remaining.next = and i32 %remaining, %minus.one
  %record = getelementptr [$thread.size x i8], ptr %first, i32 %lane
  %seen.at = getelementptr i8, ptr %record, i64 $thread.seen
  %operand = load float, ptr %seen.at
  %size = call float @llvm.fabs.f32(float %operand)
  %value = select i1 %absolute, float %size, float %operand
  %unordered = fcmp uno float %value, %value
  %has_nan.next = or i1 %has_nan, %unordered
  %low = call float @ptxlink.min.f32(float %result, float %value)
  %high = call float @ptxlink.max.f32(float %result, float %value)
  %result.next = select i1 %is_max, float %high, float %low
  %more = icmp ne i32 %remaining.next, 0
  br i1 %more, label %next, label %done
done:
  %is_nan = and i1 %nan, %has_nan.next
  %unordered.result = fcmp uno float %result.next, %result.next
  %canonical = or i1 %is_nan, %unordered.result
  %bits = bitcast float %result.next to i32
  %chosen = select i1 %canonical, i32 2147483647, i32 %bits
  ret i32 %chosen
}

; Halves are converted to floats, computed with, and rounded once. LLVM's conversions would call functions of the
; compiler's runtime library, without which the process would end. `odd` rounds a double to odd: the last bit of the
; float is 1 if the result is inexact, so that a second rounding returns the same as a single one.

define internal float @ptxlink.odd(double %x) alwaysinline {
  %f = fptrunc double %x to float
  %back = fpext float %f to double
  %exact = fcmp ueq double %back, %x
  %bits = bitcast float %f to i32
  %size = call double @llvm.fabs.f64(double %x)
  %other = call double @llvm.fabs.f64(double %back)
  %above = fcmp ogt double %other, %size
  %one = zext i1 %above to i32
  %below = sub i32 %bits, %one
  %odd = or i32 %below, 1
  %chosen = select i1 %exact, i32 %bits, i32 %odd
  %result = bitcast i32 %chosen to float
  ret float %result
}
define internal float @ptxlink.fused(float %a, float %b, float %c) alwaysinline {
  %value = call double @ptxlink.fma.odd(float %a, float %b, float %c)
  %result = call float @ptxlink.odd(double %value)
  ret float %result
}
; Round to odd, given a number rounded to nearest and the sign of its error: exact = sum + missing.
define internal double @ptxlink.to.odd(double %sum, double %missing) alwaysinline {
  %some = fcmp one double %missing, 0.0
  %short = fcmp ogt double %missing, 0.0
  %negative = fcmp olt double %sum, 0.0
  %above = xor i1 %short, %negative
  %long = xor i1 %above, true
  %bits = bitcast double %sum to i64
  %one = zext i1 %long to i64
  %below = sub i64 %bits, %one
  %odd = or i64 %below, 1
  %chosen = select i1 %some, i64 %odd, i64 %bits
  %result = bitcast i64 %chosen to double
  ret double %result
}
; The product of two floats is exact in a double, and so is the error of its sum with a third (Knuth's TwoSum).
define internal double @ptxlink.fma.odd(float %a, float %b, float %c) alwaysinline {
  %a.wide = fpext float %a to double
  %b.wide = fpext float %b to double
  %c.wide = fpext float %c to double
  %product = fmul double %a.wide, %b.wide
  %sum = fadd double %product, %c.wide
  %back = fsub double %sum, %product
  %rest = fsub double %sum, %back
  %missing.product = fsub double %product, %rest
  %missing.c = fsub double %c.wide, %back
  %missing = fadd double %missing.product, %missing.c
  %result = call double @ptxlink.to.odd(double %sum, double %missing)
  ret double %result
}
define internal float @ptxlink.f16.decode(i16 %h) alwaysinline {
  %wide = zext i16 %h to i32
  %size = and i32 %wide, 32767
  %moved = shl i32 %size, 13
  %small = bitcast i32 %moved to float
  %scaled = fmul float %small, 0x46F0000000000000
  %bits = bitcast float %scaled to i32
  %special = icmp uge i32 %size, 31744
  %filled = or i32 %moved, 2139095040
  %value = select i1 %special, i32 %filled, i32 %bits
  %top = and i32 %wide, 32768
  %sign = shl i32 %top, 16
  %all = or i32 %value, %sign
  %result = bitcast i32 %all to float
  ret float %result
}
define internal float @ptxlink.bf16.decode(i16 %h) alwaysinline {
  %wide = zext i16 %h to i32
  %bits = shl i32 %wide, 16
  %result = bitcast i32 %bits to float
  ret float %result
}
define internal i16 @ptxlink.round(i32 %bits, i32 %kept, i32 %shift, i32 %largest, i32 %mode) alwaysinline {
  %one = shl i32 1, %shift
  %ones = sub i32 %one, 1
  %rest = and i32 %kept, %ones
  %quotient = lshr i32 %kept, %shift
  %half = lshr i32 %one, 1
  %above = icmp ugt i32 %rest, %half
  %tie = icmp eq i32 %rest, %half
  %low = trunc i32 %quotient to i1
  %even = and i1 %tie, %low
  %near = or i1 %above, %even
  %inexact = icmp ne i32 %rest, 0
  %negative = icmp slt i32 %bits, 0
  %positive = xor i1 %negative, true
  %up = and i1 %inexact, %positive
  %down = and i1 %inexact, %negative
  %is.rn = icmp eq i32 %mode, 1
  %is.rp = icmp eq i32 %mode, 2
  %is.rm = icmp eq i32 %mode, 3
  %a = select i1 %is.rn, i1 %near, i1 false
  %b = select i1 %is.rp, i1 %up, i1 %a
  %c = select i1 %is.rm, i1 %down, i1 %b
  %more = zext i1 %c to i32
  %sum = add i32 %quotient, %more
  %p = select i1 %is.rp, i1 %positive, i1 %is.rn
  %away = select i1 %is.rm, i1 %negative, i1 %p
  %edge = select i1 %away, i32 0, i32 1
  %limit = sub i32 %largest, %edge
  %fits = icmp ult i32 %sum, %limit
  %capped = select i1 %fits, i32 %sum, i32 %limit
  %size = and i32 %bits, 2147483647
  %infinite = icmp eq i32 %size, 2139095040
  %number = select i1 %infinite, i32 %largest, i32 %capped
  %nan = icmp ugt i32 %size, 2139095040
  %sign = lshr i32 %bits, 16
  %top = and i32 %sign, 32768
  %signed = or i32 %number, %top
  %all = select i1 %nan, i32 32767, i32 %signed
  %result = trunc i32 %all to i16
  ret i16 %result
}
define internal i16 @ptxlink.f16.encode(float %x, i32 %mode) alwaysinline {
  %bits = bitcast float %x to i32
  %size = and i32 %bits, 2147483647
  %normal = icmp uge i32 %size, 947912704
  %rebased = sub i32 %size, 939524096
  %exponent = lshr i32 %size, 23
  %distance = sub i32 126, %exponent
  %bounded = call i32 @llvm.umin.i32(i32 %distance, i32 31)
  %fraction = and i32 %size, 8388607
  %hidden = or i32 %fraction, 8388608
  %empty = icmp eq i32 %exponent, 0
  %digits = select i1 %empty, i32 %fraction, i32 %hidden
  %kept = select i1 %normal, i32 %rebased, i32 %digits
  %shift = select i1 %normal, i32 13, i32 %bounded
  %result = call i16 @ptxlink.round(i32 %bits, i32 %kept, i32 %shift, i32 31744, i32 %mode)
  ret i16 %result
}
define internal i16 @ptxlink.bf16.encode(float %x, i32 %mode) alwaysinline {
  %bits = bitcast float %x to i32
  %size = and i32 %bits, 2147483647
  %result = call i16 @ptxlink.round(i32 %bits, i32 %size, i32 16, i32 32640, i32 %mode)
  ret i16 %result
}

; Floats of 8 bits: %shift bits of a float's fraction are cut off. Numbers out of range become the largest one, and NaN
; becomes 0x7f. The sum with %magic has a small number, as a multiple of the smallest one, in its lowest bits, rounded
; to nearest even.

define internal i8 @ptxlink.float8.encode(float %x, i32 %shift, i32 %rebias, i32 %normal, float %magic, i32 %largest) alwaysinline {
  %bits = bitcast float %x to i32
  %size = and i32 %bits, 2147483647
  %quotient = lshr i32 %size, %shift
  %last = and i32 %quotient, 1
  %unit = shl i32 1, %shift
  %half = lshr i32 %unit, 1
  %below = sub i32 %half, 1
  %increment = add i32 %below, %last
  %sum = add i32 %size, %increment
  %cut = lshr i32 %sum, %shift
  %number = sub i32 %cut, %rebias
  %positive = bitcast i32 %size to float
  %aligned = fadd float %positive, %magic
  %aligned.bits = bitcast float %aligned to i32
  %magic.bits = bitcast float %magic to i32
  %multiple = sub i32 %aligned.bits, %magic.bits
  %small = icmp ult i32 %size, %normal
  %chosen = select i1 %small, i32 %multiple, i32 %number
  %capped = call i32 @llvm.umin.i32(i32 %chosen, i32 %largest)
  %top = lshr i32 %bits, 24
  %sign = and i32 %top, 128
  %signed = or i32 %capped, %sign
  %nan = icmp ugt i32 %size, 2139095040
  %all = select i1 %nan, i32 127, i32 %signed
  %result = trunc i32 %all to i8
  ret i8 %result
}
define internal i8 @ptxlink.e4m3.encode(float %x) alwaysinline {
  %result = call i8 @ptxlink.float8.encode(float %x, i32 20, i32 960, i32 1015021568, float 16384.0, i32 126)
  ret i8 %result
}
define internal i8 @ptxlink.e5m2.encode(float %x) alwaysinline {
  %result = call i8 @ptxlink.float8.encode(float %x, i32 21, i32 448, i32 947912704, float 128.0, i32 123)
  ret i8 %result
}
; A half has the exponents of e5m2, and after a product by 256 those of e4m3.
define internal float @ptxlink.e5m2.decode(i8 %b) alwaysinline {
  %wide = zext i8 %b to i16
  %half = shl i16 %wide, 8
  %result = call float @ptxlink.f16.decode(i16 %half)
  ret float %result
}
define internal float @ptxlink.e4m3.decode(i8 %b) alwaysinline {
  %wide = zext i8 %b to i16
  %size = and i16 %wide, 127
  %fraction = shl i16 %size, 7
  %top = shl i16 %wide, 8
  %sign = and i16 %top, -32768
  %half = or i16 %fraction, %sign
  %scaled = call float @ptxlink.f16.decode(i16 %half)
  %number = fmul float %scaled, 256.0
  %nan = icmp eq i16 %size, 127
  %result = select i1 %nan, float 0x7FF8000000000000, float %number
  ret float %result
}

; Directed rounding: up, or toward zero if %up is false. Callers negate operands and result to round down. Changing the
; processor's rounding mode takes 30 to 90 ns. Instead, a float is rounded from a double that was rounded to odd, and
; a double from a 128-bit sum whose lowest bit is 1 if bits were shifted out.

define internal float @ptxlink.directed.f32(double %x, i1 %up) alwaysinline {
  %near = fptrunc double %x to float
  %back = fpext float %near to double
  %less = fcmp olt double %back, %x
  %more = fcmp ogt double %back, %x
  %bits = bitcast float %near to i32
  %negative = icmp slt i32 %bits, 0
  %zero = fcmp oeq float %near, 0.0
  %step = select i1 %negative, i32 -1, i32 1
  %next = add i32 %bits, %step
  %above = select i1 %zero, i32 1, i32 %next
  %raised = select i1 %less, i32 %above, i32 %bits
  %large = select i1 %negative, i1 %less, i1 %more
  %below = sub i32 %bits, 1
  %cut = select i1 %large, i32 %below, i32 %bits
  %chosen = select i1 %up, i32 %raised, i32 %cut
  %result = bitcast i32 %chosen to float
  ret float %result
}
define internal float @ptxlink.directed.fma.f32(float %a, float %b, float %c, i1 %up) alwaysinline {
  %value = call double @ptxlink.fma.odd(float %a, float %b, float %c)
  %result = call float @ptxlink.directed.f32(double %value, i1 %up)
  ret float %result
}
define internal float @ptxlink.directed.fdiv.f32(float %a, float %b, i1 %up) alwaysinline {
  %a.wide = fpext float %a to double
  %b.wide = fpext float %b to double
  %quotient = fdiv double %a.wide, %b.wide
  %negated = fneg double %quotient
  %rest = call double @llvm.fma.f64(double %negated, double %b.wide, double %a.wide)
  %missing = fmul double %rest, %b.wide
  %value = call double @ptxlink.to.odd(double %quotient, double %missing)
  %result = call float @ptxlink.directed.f32(double %value, i1 %up)
  ret float %result
}
define internal float @ptxlink.directed.sqrt.f32(float %a, i1 %up) alwaysinline {
  %wide = fpext float %a to double
  %root = call double @llvm.sqrt.f64(double %wide)
  %negated = fneg double %root
  %missing = call double @llvm.fma.f64(double %negated, double %root, double %wide)
  %value = call double @ptxlink.to.odd(double %root, double %missing)
  %result = call float @ptxlink.directed.f32(double %value, i1 %up)
  ret float %result
}
define internal i64 @ptxlink.exponent(double %x) alwaysinline {
  ; A subnormal number has the exponent that it had if its significand were normalised.
  %bits = bitcast double %x to i64
  %size = and i64 %bits, 9223372036854775807
  %exponent = lshr i64 %size, 52
  %normal = icmp ne i64 %exponent, 0
  %zeros = call i64 @llvm.ctlz.i64(i64 %size, i1 false)
  %small = sub i64 12, %zeros
  %result = select i1 %normal, i64 %exponent, i64 %small
  ret i64 %result
}
define internal i128 @ptxlink.significand(double %x) alwaysinline {
  %bits = bitcast double %x to i64
  %size = and i64 %bits, 9223372036854775807
  %above = lshr i64 %size, 52
  %normal = icmp ne i64 %above, 0
  %zeros = call i64 @llvm.ctlz.i64(i64 %size, i1 false)
  %distance = sub i64 %zeros, 11
  %count = call i64 @llvm.umin.i64(i64 %distance, i64 63)
  %moved = shl i64 %size, %count
  %fraction = and i64 %size, 4503599627370495
  %filled = or i64 %fraction, 4503599627370496
  %chosen = select i1 %normal, i64 %filled, i64 %moved
  %result = zext i64 %chosen to i128
  ret i128 %result
}
define internal i128 @ptxlink.aligned(i128 %x, i64 %distance) alwaysinline {
  ; Shift right; the lowest bit becomes 1 if bits are shifted out.
  %positive = call i64 @llvm.smax.i64(i64 %distance, i64 0)
  %count = call i64 @llvm.umin.i64(i64 %positive, i64 127)
  %wide = zext i64 %count to i128
  %moved = lshr i128 %x, %wide
  %back = shl i128 %moved, %wide
  %some = icmp ne i128 %back, %x
  %more = zext i1 %some to i128
  %result = or i128 %moved, %more
  ret i128 %result
}
define internal double @ptxlink.directed.fma.f64(double %a, double %b, double %c, i1 %up) {
  %near = call double @llvm.fma.f64(double %a, double %b, double %c)
  %a.zero = fcmp oeq double %a, 0.0
  %b.zero = fcmp oeq double %b, 0.0
  %zero.product = or i1 %a.zero, %b.zero
  %a.none = fsub double %a, %a
  %b.none = fsub double %b, %b
  %c.none = fsub double %c, %c
  %none.ab = fadd double %a.none, %b.none
  %none = fadd double %none.ab, %c.none
  %special = fcmp uno double %none, 0.0
  %as.near = or i1 %zero.product, %special

  %a.bits = bitcast double %a to i64
  %b.bits = bitcast double %b to i64
  %c.bits = bitcast double %c to i64
  %product.sign = xor i64 %a.bits, %b.bits
  %opposite.bits = xor i64 %product.sign, %c.bits
  %opposite = icmp slt i64 %opposite.bits, 0
  %product.negative = icmp slt i64 %product.sign, 0

  ; The highest bits of product and addend are at 124 to 126; %p.at and %c.at are the exponents of bit 0.
  %a.size = call i128 @ptxlink.significand(double %a)
  %b.size = call i128 @ptxlink.significand(double %b)
  %c.size = call i128 @ptxlink.significand(double %c)
  %product = mul i128 %a.size, %b.size
  %p.top = shl i128 %product, 20
  %c.top = shl i128 %c.size, 73
  %a.at = call i64 @ptxlink.exponent(double %a)
  %b.at = call i64 @ptxlink.exponent(double %b)
  %c.exponent = call i64 @ptxlink.exponent(double %c)
  %ab.at = add i64 %a.at, %b.at
  %p.at = sub i64 %ab.at, 2170
  %c.at = sub i64 %c.exponent, 1148
  %c.distance = sub i64 %p.at, %c.at
  %p.distance = sub i64 0, %c.distance
  %c.zero = icmp eq i128 %c.size, 0
  %p.count = select i1 %c.zero, i64 0, i64 %p.distance
  %p = call i128 @ptxlink.aligned(i128 %p.top, i64 %p.count)
  %c.part = call i128 @ptxlink.aligned(i128 %c.top, i64 %c.distance)
  %larger.at = call i64 @llvm.smax.i64(i64 %p.at, i64 %c.at)
  %at = select i1 %c.zero, i64 %p.at, i64 %larger.at

  %sum = add i128 %p, %c.part
  %difference = sub i128 %p, %c.part
  %reversed = icmp ult i128 %p, %c.part
  %back = sub i128 %c.part, %p
  %distance = select i1 %reversed, i128 %back, i128 %difference
  %total = select i1 %opposite, i128 %distance, i128 %sum
  %flips = and i1 %opposite, %reversed
  %negative = xor i1 %product.negative, %flips

  ; Normalise: the highest bit moves to 126, so that a normal result has its lowest bit at 74.
  %zeros = call i128 @llvm.ctlz.i128(i128 %total, i1 false)
  %zeros.short = trunc i128 %zeros to i64
  %nothing = icmp eq i128 %total, 0
  %count = select i1 %nothing, i128 0, i128 %zeros
  %whole = shl i128 %total, %count
  %top = call i128 @ptxlink.aligned(i128 %whole, i64 1)
  %raised = sub i64 %at, %zeros.short
  %exponent = add i64 %raised, 1150
  %below = sub i64 1, %exponent
  %extra = call i64 @llvm.smax.i64(i64 %below, i64 0)
  %shift = add i64 %extra, 74
  %least = call i64 @llvm.umin.i64(i64 %shift, i64 127)
  %by = zext i64 %least to i128
  %digits = lshr i128 %top, %by
  %kept = shl i128 %digits, %by
  %inexact = icmp ne i128 %kept, %top
  %digits.short = trunc i128 %digits to i64
  %biased = call i64 @llvm.smax.i64(i64 %exponent, i64 1)
  %above = sub i64 %biased, 1
  %place = shl i64 %above, 52
  %size.all = add i64 %place, %digits.short
  %overflows = icmp sge i64 %exponent, 2047
  %size = select i1 %overflows, i64 9218868437227405311, i64 %size.all
  %lacks = or i1 %inexact, %overflows
  %positive = xor i1 %negative, true
  %rises = and i1 %up, %positive
  %adds = and i1 %rises, %lacks
  %one = zext i1 %adds to i64
  %rounded = add i64 %size, %one
  %minus = select i1 %negative, i64 -9223372036854775808, i64 0
  %signed = or i64 %rounded, %minus
  %value = bitcast i64 %signed to double
  %sum.value = select i1 %nothing, double 0.0, double %value
  %result = select i1 %as.near, double %near, double %sum.value
  ret double %result
}
define internal double @ptxlink.directed.step.f64(double %near, double %rest, double %negated.rest, i1 %up) {
  ; Return the neighbour of a result that was rounded to nearest, if its error requires it. %rest is exact - %near
  ; times a positive number, rounded up, and %negated.rest the same of the negated difference.
  %less = fcmp ogt double %rest, 0.0
  %more = fcmp ogt double %negated.rest, 0.0
  %bits = bitcast double %near to i64
  %negative = icmp slt i64 %bits, 0
  %zero = fcmp oeq double %near, 0.0
  %step = select i1 %negative, i64 -1, i64 1
  %next = add i64 %bits, %step
  %above = select i1 %zero, i64 1, i64 %next
  %raised = select i1 %less, i64 %above, i64 %bits
  %large = select i1 %negative, i1 %less, i1 %more
  %below = sub i64 %bits, 1
  %cut = select i1 %large, i64 %below, i64 %bits
  %chosen = select i1 %up, i64 %raised, i64 %cut
  %result = bitcast i64 %chosen to double
  ret double %result
}
define internal double @ptxlink.directed.fdiv.f64(double %a, double %b, i1 %up) {
  %near = fdiv double %a, %b
  %b.bits = bitcast double %b to i64
  %b.negative = icmp slt i64 %b.bits, 0
  %negated = fneg double %near
  %negated.a = fneg double %a
  %rest = call double @ptxlink.directed.fma.f64(double %negated, double %b, double %a, i1 true)
  %back = call double @ptxlink.directed.fma.f64(double %near, double %b, double %negated.a, i1 true)
  %less = select i1 %b.negative, double %back, double %rest
  %more = select i1 %b.negative, double %rest, double %back
  %result = call double @ptxlink.directed.step.f64(double %near, double %less, double %more, i1 %up)
  ret double %result
}
define internal double @ptxlink.directed.sqrt.f64(double %a, i1 %up) {
  %near = call double @llvm.sqrt.f64(double %a)
  %negated = fneg double %near
  %negated.a = fneg double %a
  %rest = call double @ptxlink.directed.fma.f64(double %negated, double %near, double %a, i1 true)
  %back = call double @ptxlink.directed.fma.f64(double %near, double %near, double %negated.a, i1 true)
  %result = call double @ptxlink.directed.step.f64(double %near, double %rest, double %back, i1 %up)
  ret double %result
}

; Alias metadata: memory of the runtime (!1) never overlaps memory that PTX accesses (!2). !5: a check rarely fails.

!0 = !{!"numba-ptxlink"}
!1 = !{!3, !3, i64 0}
!2 = !{!4, !4, i64 0}
!3 = !{!"runtime", !0, i64 0}
!4 = !{!"program", !0, i64 0}
!5 = !{!"branch_weights", i32 2000, i32 1}
