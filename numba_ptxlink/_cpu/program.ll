; Part of each LLVM module with PTX code: declarations of functions in `runtime.ll`, and functions that the translations
; of instructions call. In this file, "above" and "below" compare values, and "up" is toward positive infinity.

declare void @ptxlink.record_fault(ptr, i64, i64, i64, i64) cold
declare i1 @ptxlink.find_region(ptr, ptr, i64, i64, i64, i1) cold
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

; Bit fields. `clamp` returns the smaller of two numbers, and `ones` a mask with %count ones, but at most %limit. The
; results have 128 bits, since LLVM defines the shift of an i64 only by distances below 64.

define internal i128 @ptxlink.clamp(i32 %count, i32 %limit) alwaysinline {
  %smaller = call i32 @llvm.umin.i32(i32 %count, i32 %limit)
  %result = zext i32 %smaller to i128
  ret i128 %result
}
define internal i128 @ptxlink.ones(i32 %count, i32 %limit) alwaysinline {
  %clamped = call i128 @ptxlink.clamp(i32 %count, i32 %limit)
  %next_power = shl i128 1, %clamped
  %result = sub i128 %next_power, 1
  ret i128 %result
}

; `fns`: the position of the n-th bit that is set, counted from %base on: upwards if %offset (n) is positive, downwards
; if it is negative. With an offset of 0, it is %base if the bit there is set. All ones if there is no such bit.

define internal i32 @ptxlink.find_nth_set(i32 %mask, i32 %base, i32 %offset) noinline {
entry:
  %is_zero = icmp eq i32 %offset, 0
  %zero_count = zext i1 %is_zero to i32
  %distance = call i32 @llvm.abs.i32(i32 %offset, i1 false)
  %count = add i32 %distance, %zero_count
  %is_negative = icmp slt i32 %offset, 0
  %step = select i1 %is_negative, i32 -1, i32 1
  %position.at = alloca i32
  %remaining.at = alloca i32
  store i32 %base, ptr %position.at
  store i32 %count, ptr %remaining.at
  br label %loop
loop:
  %position = load i32, ptr %position.at
  %is_inside = icmp ult i32 %position, 32
  br i1 %is_inside, label %test, label %not_found
test:
  %shifted = lshr i32 %mask, %position
  %bit = and i32 %shifted, 1
  %remaining = load i32, ptr %remaining.at
  %remaining.next = sub i32 %remaining, %bit
  store i32 %remaining.next, ptr %remaining.at
  %is_found = icmp eq i32 %remaining.next, 0
  br i1 %is_found, label %done, label %go_on
done:
  ret i32 %position
go_on:
  %position.next = add i32 %position, %step
  store i32 %position.next, ptr %position.at
  br i1 %is_zero, label %not_found, label %loop
not_found:
  ret i32 -1
}

; Packed integers. The four functions `zext` and `sext` extend the byte or the 16-bit half that begins at the bit
; %position. `permute` is for the byte of a result of `prmt` at the bit %position (0, 8, 16 or 24), for which
; %selectors has the nibble at half of this position: the index of one of eight %bytes in its lower 3 bits, and in its
; top bit whether to replace the byte by copies of its sign.

define internal i32 @ptxlink.zext.byte(i32 %value, i32 %position) alwaysinline {
  %shifted = lshr i32 %value, %position
  %result = and i32 %shifted, 255
  ret i32 %result
}
define internal i32 @ptxlink.sext.byte(i32 %value, i32 %position) alwaysinline {
  %shifted = lshr i32 %value, %position
  %byte = trunc i32 %shifted to i8
  %result = sext i8 %byte to i32
  ret i32 %result
}
define internal i32 @ptxlink.zext.half(i32 %value, i32 %position) alwaysinline {
  %shifted = lshr i32 %value, %position
  %result = and i32 %shifted, 65535
  ret i32 %result
}
define internal i32 @ptxlink.sext.half(i32 %value, i32 %position) alwaysinline {
  %shifted = lshr i32 %value, %position
  %half = trunc i32 %shifted to i16
  %result = sext i16 %half to i32
  ret i32 %result
}
define internal i32 @ptxlink.permute(i64 %bytes, i32 %selectors, i32 %position) alwaysinline {
  %nibble.position = lshr i32 %position, 1
  %selector = lshr i32 %selectors, %nibble.position
  %index = and i32 %selector, 7
  %byte.position = shl i32 %index, 3
  %distance = zext i32 %byte.position to i64
  %shifted = lshr i64 %bytes, %distance
  %byte = trunc i64 %shifted to i8
  %sign = ashr i8 %byte, 7
  %sign.flag = and i32 %selector, 8
  %copies_sign = icmp ne i32 %sign.flag, 0
  %selected = select i1 %copies_sign, i8 %sign, i8 %byte
  %extended = zext i8 %selected to i32
  %result = shl i32 %extended, %position
  ret i32 %result
}

; `lop3`: `mask` copies the bit %index of the table to all bits. `choose` takes each bit from %if_one or from %if_zero,
; depending on the bit of %selector at the same position.

define internal i32 @ptxlink.mask(i32 %table, i32 %index) alwaysinline {
  %shifted = lshr i32 %table, %index
  %bit = and i32 %shifted, 1
  %result = sub i32 0, %bit
  ret i32 %result
}
define internal i32 @ptxlink.choose(i32 %selector, i32 %if_zero, i32 %if_one) alwaysinline {
  %differs = xor i32 %if_zero, %if_one
  %changes = and i32 %differs, %selector
  %result = xor i32 %if_zero, %changes
  ret i32 %result
}

; Count arrivals at a barrier of `mbarrier`; return the state that it had before. The state has the pending arrivals in
; the bits 0 to 19, the arrivals that end a phase in the bits 20 to 39, and the number of the phase from bit 40 on. The
; last pending arrival begins the next phase. With %drops, later phases end without these arrivals. Threads of a block
; run one at a time, so that no atomic access is needed.

define internal i64 @ptxlink.mbarrier.arrive(ptr %barrier, i32 %arrivals, i1 %drops) {
  %old.state = load i64, ptr %barrier
  %count = zext i32 %arrivals to i64
  %dropped = select i1 %drops, i64 %count, i64 0
  %dropped.field = shl i64 %dropped, 20
  %dropped.state = sub i64 %old.state, %dropped.field
  %reduced.state = sub i64 %dropped.state, %count
  %pending = and i64 %reduced.state, 1048575
  %is_complete = icmp eq i64 %pending, 0
  %expected.field = lshr i64 %reduced.state, 20
  %expected = and i64 %expected.field, 1048575
  %restarted.state = add i64 %reduced.state, %expected
  %next.state = add i64 %restarted.state, 1099511627776
  %new.state = select i1 %is_complete, i64 %next.state, i64 %reduced.state
  store i64 %new.state, ptr %barrier
  ret i64 %old.state
}

; Minimum and maximum. LLVM 20's intrinsics return the wrong operand if one is subnormal. For PTX -0 is less than +0,
; but the two compare equal: combine the bits of equal operands, by `or` for the minimum and `and` for the maximum. If
; one operand is NaN, the result is the other.

define internal float @ptxlink.min.f32(float %a, float %b) alwaysinline {
  %a_is_less = fcmp olt float %a, %b
  %are_equal = fcmp oeq float %a, %b
  %b_is_nan = fcmp uno float %b, %b
  %takes_a = or i1 %a_is_less, %b_is_nan
  %bits.a = bitcast float %a to i32
  %bits.b = bitcast float %b to i32
  %bits.combined = or i32 %bits.a, %bits.b
  %combined = bitcast i32 %bits.combined to float
  %selected = select i1 %takes_a, float %a, float %b
  %result = select i1 %are_equal, float %combined, float %selected
  ret float %result
}
define internal double @ptxlink.min.f64(double %a, double %b) alwaysinline {
  %a_is_less = fcmp olt double %a, %b
  %are_equal = fcmp oeq double %a, %b
  %b_is_nan = fcmp uno double %b, %b
  %takes_a = or i1 %a_is_less, %b_is_nan
  %bits.a = bitcast double %a to i64
  %bits.b = bitcast double %b to i64
  %bits.combined = or i64 %bits.a, %bits.b
  %combined = bitcast i64 %bits.combined to double
  %selected = select i1 %takes_a, double %a, double %b
  %result = select i1 %are_equal, double %combined, double %selected
  ret double %result
}
define internal float @ptxlink.max.f32(float %a, float %b) alwaysinline {
  %a_is_greater = fcmp ogt float %a, %b
  %are_equal = fcmp oeq float %a, %b
  %b_is_nan = fcmp uno float %b, %b
  %takes_a = or i1 %a_is_greater, %b_is_nan
  %bits.a = bitcast float %a to i32
  %bits.b = bitcast float %b to i32
  %bits.combined = and i32 %bits.a, %bits.b
  %combined = bitcast i32 %bits.combined to float
  %selected = select i1 %takes_a, float %a, float %b
  %result = select i1 %are_equal, float %combined, float %selected
  ret float %result
}
define internal double @ptxlink.max.f64(double %a, double %b) alwaysinline {
  %a_is_greater = fcmp ogt double %a, %b
  %are_equal = fcmp oeq double %a, %b
  %b_is_nan = fcmp uno double %b, %b
  %takes_a = or i1 %a_is_greater, %b_is_nan
  %bits.a = bitcast double %a to i64
  %bits.b = bitcast double %b to i64
  %bits.combined = and i64 %bits.a, %bits.b
  %combined = bitcast i64 %bits.combined to double
  %selected = select i1 %takes_a, double %a, double %b
  %result = select i1 %are_equal, double %combined, double %selected
  ret double %result
}

; `redux` of floats, on the operands of the threads of the mask %lanes; %first_record is the ThreadRecord of lane 0. The
; result is NaN if all operands are, or with %keeps_nan if one is: 2147483647 (0x7fffffff), the NaN of a GPU.

define internal i32 @ptxlink.reduce.f32(ptr %first_record, i32 %lanes, i1 %is_max, i1 %is_absolute, i1 %keeps_nan) {
entry:
  br label %loop
loop:
  %remaining = phi i32 [%lanes, %entry], [%remaining.next, %loop]
  %result = phi float [0x7FF8000000000000, %entry], [%result.next, %loop]
  %has_nan = phi i1 [false, %entry], [%has_nan.next, %loop]
  %lane = call i32 @llvm.cttz.i32(i32 %remaining, i1 true)
  %minus_one = sub i32 %remaining, 1
  %remaining.next = and i32 %remaining, %minus_one
  %record = getelementptr [$thread.size x i8], ptr %first_record, i32 %lane
  %seen.at = getelementptr i8, ptr %record, i64 $thread.seen
  %operand = load float, ptr %seen.at
  %magnitude = call float @llvm.fabs.f32(float %operand)
  %value = select i1 %is_absolute, float %magnitude, float %operand
  %is_nan = fcmp uno float %value, %value
  %has_nan.next = or i1 %has_nan, %is_nan
  %minimum = call float @ptxlink.min.f32(float %result, float %value)
  %maximum = call float @ptxlink.max.f32(float %result, float %value)
  %result.next = select i1 %is_max, float %maximum, float %minimum
  %has_more = icmp ne i32 %remaining.next, 0
  br i1 %has_more, label %loop, label %done
done:
  %returns_nan = and i1 %keeps_nan, %has_nan.next
  %result_is_nan = fcmp uno float %result.next, %result.next
  %is_gpu_nan = or i1 %returns_nan, %result_is_nan
  %bits = bitcast float %result.next to i32
  %result.bits = select i1 %is_gpu_nan, i32 2147483647, i32 %bits
  ret i32 %result.bits
}

; 16-bit floats are converted to floats, computed with, and rounded once. LLVM's conversions would call functions of
; compiler-rt, a library that llvmlite does not load: the process would end at the call.
;
; `round_to_odd` rounds a double to a float, and to odd: if the result is inexact, it is the neighbour whose last bit
; is 1. Rounding the result again, to a 16-bit float, then returns the same as rounding once.

define internal float @ptxlink.round_to_odd(double %exact) alwaysinline {
  %near = fptrunc double %exact to float
  %near.wide = fpext float %near to double
  %is_exact = fcmp ueq double %near.wide, %exact
  %bits = bitcast float %near to i32
  %exact.size = call double @llvm.fabs.f64(double %exact)
  %near.size = call double @llvm.fabs.f64(double %near.wide)
  %is_above = fcmp ogt double %near.size, %exact.size
  %excess = zext i1 %is_above to i32
  %truncated = sub i32 %bits, %excess
  %odd = or i32 %truncated, 1
  %result.bits = select i1 %is_exact, i32 %bits, i32 %odd
  %result = bitcast i32 %result.bits to float
  ret float %result
}
; Fused multiplication and addition for 16-bit floats, rounded to odd: the caller rounds the result to 16 bits.
define internal float @ptxlink.fused(float %a, float %b, float %c) alwaysinline {
  %odd = call double @ptxlink.fma.odd(float %a, float %b, float %c)
  %result = call float @ptxlink.round_to_odd(double %odd)
  ret float %result
}
; Round to odd, given a sum, quotient or root %sum that was rounded to nearest, and %missing, which has the sign of the
; difference (exact value - %sum): if %sum was rounded away from zero, take its neighbour toward zero, and then set the
; last bit.
define internal double @ptxlink.correct_to_odd(double %sum, double %missing) alwaysinline {
  %is_inexact = fcmp one double %missing, 0.0
  %is_below_exact = fcmp ogt double %missing, 0.0
  %is_negative = fcmp olt double %sum, 0.0
  %is_truncated = xor i1 %is_below_exact, %is_negative
  %is_rounded_away = xor i1 %is_truncated, true
  %bits = bitcast double %sum to i64
  %excess = zext i1 %is_rounded_away to i64
  %truncated = sub i64 %bits, %excess
  %odd = or i64 %truncated, 1
  %result.bits = select i1 %is_inexact, i64 %odd, i64 %bits
  %result = bitcast i64 %result.bits to double
  ret double %result
}
; a * b + c, rounded to odd as a double. The product of two floats is exact in a double, and so is the error of the sum
; (Knuth's TwoSum).
define internal double @ptxlink.fma.odd(float %a, float %b, float %c) alwaysinline {
  %a.wide = fpext float %a to double
  %b.wide = fpext float %b to double
  %c.wide = fpext float %c to double
  %product = fmul double %a.wide, %b.wide
  %sum = fadd double %product, %c.wide
  %sum.c = fsub double %sum, %product
  %sum.product = fsub double %sum, %sum.c
  %missing.product = fsub double %product, %sum.product
  %missing.c = fsub double %c.wide, %sum.c
  %missing = fadd double %missing.product, %missing.c
  %result = call double @ptxlink.correct_to_odd(double %sum, double %missing)
  ret double %result
}
; The biases of the exponents of a float and of a 16-bit float are 127 and 15: multiply by 2**112 (0x46F0000000000000).
; Magnitudes from 31744 (0x7c00) on are infinity and NaN, for which the exponent is 2139095040 (0x7f800000), all ones.
define internal float @ptxlink.f16.decode(i16 %half) alwaysinline {
  %wide = zext i16 %half to i32
  %magnitude = and i32 %wide, 32767
  %float.bits = shl i32 %magnitude, 13
  %unscaled = bitcast i32 %float.bits to float
  %scaled = fmul float %unscaled, 0x46F0000000000000
  %bits = bitcast float %scaled to i32
  %is_infinite_or_nan = icmp uge i32 %magnitude, 31744
  %special.bits = or i32 %float.bits, 2139095040
  %magnitude.bits = select i1 %is_infinite_or_nan, i32 %special.bits, i32 %bits
  %sign.bit = and i32 %wide, 32768
  %sign = shl i32 %sign.bit, 16
  %result.bits = or i32 %magnitude.bits, %sign
  %result = bitcast i32 %result.bits to float
  ret float %result
}
define internal float @ptxlink.bf16.decode(i16 %half) alwaysinline {
  %wide = zext i16 %half to i32
  %bits = shl i32 %wide, 16
  %result = bitcast i32 %bits to float
  ret float %result
}
; Round to a 16-bit float: cut %shift bits off %magnitude, and add 1 if the mode requires it. %mode is a number of
; `arithmetic.ROUNDING_MODES`. A finite value that is too large becomes %infinity, or the number below %infinity if the
; mode rounds values of this sign toward zero. %bits are those of the float, which have its sign, and show whether it is
; infinity or NaN. NaN becomes 32767 (0x7fff), the only NaN that a GPU returns.
define internal i16 @ptxlink.round(i32 %bits, i32 %magnitude, i32 %shift, i32 %infinity, i32 %mode) alwaysinline {
  %unit = shl i32 1, %shift
  %rest.mask = sub i32 %unit, 1
  %rest = and i32 %magnitude, %rest.mask
  %quotient = lshr i32 %magnitude, %shift
  %half = lshr i32 %unit, 1
  %is_above_half = icmp ugt i32 %rest, %half
  %is_tie = icmp eq i32 %rest, %half
  %is_odd = trunc i32 %quotient to i1
  %rounds_tie_up = and i1 %is_tie, %is_odd
  %rounds_nearest_up = or i1 %is_above_half, %rounds_tie_up
  %is_inexact = icmp ne i32 %rest, 0
  %is_negative = icmp slt i32 %bits, 0
  %is_positive = xor i1 %is_negative, true
  %rounds_positive_up = and i1 %is_inexact, %is_positive
  %rounds_negative_up = and i1 %is_inexact, %is_negative
  %is.rn = icmp eq i32 %mode, 1
  %is.rp = icmp eq i32 %mode, 2
  %is.rm = icmp eq i32 %mode, 3
  %increments.rn = select i1 %is.rn, i1 %rounds_nearest_up, i1 false
  %increments.rp = select i1 %is.rp, i1 %rounds_positive_up, i1 %increments.rn
  %increments = select i1 %is.rm, i1 %rounds_negative_up, i1 %increments.rp
  %increment = zext i1 %increments to i32
  %sum = add i32 %quotient, %increment
  %overflows.rp = select i1 %is.rp, i1 %is_positive, i1 %is.rn
  %reaches_infinity = select i1 %is.rm, i1 %is_negative, i1 %overflows.rp
  %limit.distance = select i1 %reaches_infinity, i32 0, i32 1
  %limit = sub i32 %infinity, %limit.distance
  %is_below_limit = icmp ult i32 %sum, %limit
  %limited = select i1 %is_below_limit, i32 %sum, i32 %limit
  %float.magnitude = and i32 %bits, 2147483647
  %is_infinite = icmp eq i32 %float.magnitude, 2139095040
  %result.magnitude = select i1 %is_infinite, i32 %infinity, i32 %limited
  %is_nan = icmp ugt i32 %float.magnitude, 2139095040
  %sign = lshr i32 %bits, 16
  %sign.bit = and i32 %sign, 32768
  %signed = or i32 %result.magnitude, %sign.bit
  %result.wide = select i1 %is_nan, i32 32767, i32 %signed
  %result = trunc i32 %result.wide to i16
  ret i16 %result
}
; From 947912704 (2**-14) on, the result is normal: subtract 939524096, which is 127 - 15, the difference of the biases,
; in the exponent's field, and cut 13 bits off. Below, it is subnormal, a multiple of 2**-24: shift the significand, an
; integer times 2**(%exponent - 150), right by 126 - %exponent.
define internal i16 @ptxlink.f16.encode(float %value, i32 %mode) alwaysinline {
  %bits = bitcast float %value to i32
  %magnitude = and i32 %bits, 2147483647
  %is_normal = icmp uge i32 %magnitude, 947912704
  %rebased = sub i32 %magnitude, 939524096
  %exponent = lshr i32 %magnitude, 23
  %distance = sub i32 126, %exponent
  %bounded = call i32 @llvm.umin.i32(i32 %distance, i32 31)
  %fraction = and i32 %magnitude, 8388607
  %significand.normal = or i32 %fraction, 8388608
  %is_subnormal_float = icmp eq i32 %exponent, 0
  %significand = select i1 %is_subnormal_float, i32 %fraction, i32 %significand.normal
  %unrounded = select i1 %is_normal, i32 %rebased, i32 %significand
  %shift = select i1 %is_normal, i32 13, i32 %bounded
  %result = call i16 @ptxlink.round(i32 %bits, i32 %unrounded, i32 %shift, i32 31744, i32 %mode)
  ret i16 %result
}
define internal i16 @ptxlink.bf16.encode(float %value, i32 %mode) alwaysinline {
  %bits = bitcast float %value to i32
  %magnitude = and i32 %bits, 2147483647
  %result = call i16 @ptxlink.round(i32 %bits, i32 %magnitude, i32 16, i32 32640, i32 %mode)
  ret i16 %result
}

; 8-bit floats, rounded to nearest even. For a normal result, cut %shift bits off, and subtract %rebias, the difference
; of the exponents' biases, in the exponent's field. Magnitudes below %smallest_normal become subnormal: a float near
; %magic is a multiple of the smallest subnormal number, so that the sum with %magic has the result in its lowest bits.
; Infinity and numbers that are too large become %largest, the largest finite number, and NaN becomes 127 (0x7f).

define internal i8 @ptxlink.float8.encode(float %value, i32 %shift, i32 %rebias, i32 %smallest_normal, float %magic, i32 %largest) alwaysinline {
  %bits = bitcast float %value to i32
  %magnitude = and i32 %bits, 2147483647
  %quotient = lshr i32 %magnitude, %shift
  %last_bit = and i32 %quotient, 1
  %unit = shl i32 1, %shift
  %half = lshr i32 %unit, 1
  %less_than_half = sub i32 %half, 1
  %increment = add i32 %less_than_half, %last_bit
  %sum = add i32 %magnitude, %increment
  %rounded = lshr i32 %sum, %shift
  %normal.result = sub i32 %rounded, %rebias
  %magnitude.float = bitcast i32 %magnitude to float
  %aligned = fadd float %magnitude.float, %magic
  %aligned.bits = bitcast float %aligned to i32
  %magic.bits = bitcast float %magic to i32
  %subnormal.result = sub i32 %aligned.bits, %magic.bits
  %is_subnormal = icmp ult i32 %magnitude, %smallest_normal
  %unlimited = select i1 %is_subnormal, i32 %subnormal.result, i32 %normal.result
  %limited = call i32 @llvm.umin.i32(i32 %unlimited, i32 %largest)
  %sign.shifted = lshr i32 %bits, 24
  %sign = and i32 %sign.shifted, 128
  %signed = or i32 %limited, %sign
  %is_nan = icmp ugt i32 %magnitude, 2139095040
  %result.wide = select i1 %is_nan, i32 127, i32 %signed
  %result = trunc i32 %result.wide to i8
  ret i8 %result
}
define internal i8 @ptxlink.e4m3.encode(float %value) alwaysinline {
  %result = call i8 @ptxlink.float8.encode(float %value, i32 20, i32 960, i32 1015021568, float 16384.0, i32 126)
  ret i8 %result
}
define internal i8 @ptxlink.e5m2.encode(float %value) alwaysinline {
  %result = call i8 @ptxlink.float8.encode(float %value, i32 21, i32 448, i32 947912704, float 128.0, i32 123)
  ret i8 %result
}
; To decode, shift the bits to those of a 16-bit float. Its exponents have the bias 15, as in e5m2; e4m3 has the bias 7,
; so that the value is multiplied by 256, 2**(15 - 7).
define internal float @ptxlink.e5m2.decode(i8 %b) alwaysinline {
  %wide = zext i8 %b to i16
  %half = shl i16 %wide, 8
  %result = call float @ptxlink.f16.decode(i16 %half)
  ret float %result
}
define internal float @ptxlink.e4m3.decode(i8 %b) alwaysinline {
  %wide = zext i8 %b to i16
  %magnitude = and i16 %wide, 127
  %half.magnitude = shl i16 %magnitude, 7
  %sign.shifted = shl i16 %wide, 8
  %sign = and i16 %sign.shifted, -32768
  %half = or i16 %half.magnitude, %sign
  %unscaled = call float @ptxlink.f16.decode(i16 %half)
  %number = fmul float %unscaled, 256.0
  %is_nan = icmp eq i16 %magnitude, 127
  %result = select i1 %is_nan, float 0x7FF8000000000000, float %number
  ret float %result
}

; Directed rounding: up, or toward zero if %up is false. Callers negate operands and result to round down. Changing the
; processor's rounding mode would take 30 to 90 ns. Instead, a float is computed as a double that is rounded to odd, and
; a double as an integer of 128 bits, whose lowest bit is 1 if bits were shifted out.

define internal float @ptxlink.directed.f32(double %exact, i1 %up) alwaysinline {
  %near = fptrunc double %exact to float
  %near.wide = fpext float %near to double
  %is_below = fcmp olt double %near.wide, %exact
  %is_above = fcmp ogt double %near.wide, %exact
  %bits = bitcast float %near to i32
  %is_negative = icmp slt i32 %bits, 0
  %is_zero = fcmp oeq float %near, 0.0
  %step = select i1 %is_negative, i32 -1, i32 1
  %neighbour = add i32 %bits, %step
  %next_up = select i1 %is_zero, i32 1, i32 %neighbour
  %rounded_up = select i1 %is_below, i32 %next_up, i32 %bits
  %is_too_large = select i1 %is_negative, i1 %is_below, i1 %is_above
  %next_to_zero = sub i32 %bits, 1
  %rounded_to_zero = select i1 %is_too_large, i32 %next_to_zero, i32 %bits
  %result.bits = select i1 %up, i32 %rounded_up, i32 %rounded_to_zero
  %result = bitcast i32 %result.bits to float
  ret float %result
}
define internal float @ptxlink.directed.fma.f32(float %a, float %b, float %c, i1 %up) alwaysinline {
  %odd = call double @ptxlink.fma.odd(float %a, float %b, float %c)
  %result = call float @ptxlink.directed.f32(double %odd, i1 %up)
  ret float %result
}
define internal float @ptxlink.directed.fdiv.f32(float %a, float %b, i1 %up) alwaysinline {
  %a.wide = fpext float %a to double
  %b.wide = fpext float %b to double
  %quotient = fdiv double %a.wide, %b.wide
  %negated = fneg double %quotient
  %remainder = call double @llvm.fma.f64(double %negated, double %b.wide, double %a.wide)
  %missing = fmul double %remainder, %b.wide
  %odd = call double @ptxlink.correct_to_odd(double %quotient, double %missing)
  %result = call float @ptxlink.directed.f32(double %odd, i1 %up)
  ret float %result
}
define internal float @ptxlink.directed.sqrt.f32(float %a, i1 %up) alwaysinline {
  %wide = fpext float %a to double
  %root = call double @llvm.sqrt.f64(double %wide)
  %negated = fneg double %root
  %missing = call double @llvm.fma.f64(double %negated, double %root, double %wide)
  %odd = call double @ptxlink.correct_to_odd(double %root, double %missing)
  %result = call float @ptxlink.directed.f32(double %odd, i1 %up)
  ret float %result
}
define internal i64 @ptxlink.exponent(double %value) alwaysinline {
  ; Return the biased exponent; for a subnormal number that of its normalised significand, which is 0 or negative.
  %bits = bitcast double %value to i64
  %magnitude = and i64 %bits, 9223372036854775807
  %exponent = lshr i64 %magnitude, 52
  %is_normal = icmp ne i64 %exponent, 0
  %zeros = call i64 @llvm.ctlz.i64(i64 %magnitude, i1 false)
  %subnormal.exponent = sub i64 12, %zeros
  %result = select i1 %is_normal, i64 %exponent, i64 %subnormal.exponent
  ret i64 %result
}
define internal i128 @ptxlink.significand(double %value) alwaysinline {
  ; Return the significand as an integer with 53 bits, of which the highest is 1, also for a subnormal number; 0 for 0.
  %bits = bitcast double %value to i64
  %magnitude = and i64 %bits, 9223372036854775807
  %exponent = lshr i64 %magnitude, 52
  %is_normal = icmp ne i64 %exponent, 0
  %zeros = call i64 @llvm.ctlz.i64(i64 %magnitude, i1 false)
  %distance = sub i64 %zeros, 11
  %shift = call i64 @llvm.umin.i64(i64 %distance, i64 63)
  %subnormal.significand = shl i64 %magnitude, %shift
  %fraction = and i64 %magnitude, 4503599627370495
  %normal.significand = or i64 %fraction, 4503599627370496
  %significand = select i1 %is_normal, i64 %normal.significand, i64 %subnormal.significand
  %result = zext i64 %significand to i128
  ret i128 %result
}
define internal i128 @ptxlink.shift_to_odd(i128 %value, i64 %distance) alwaysinline {
  ; Shift right by %distance; the lowest bit becomes 1 if bits are shifted out. Do nothing for a negative distance.
  %nonnegative = call i64 @llvm.smax.i64(i64 %distance, i64 0)
  %count = call i64 @llvm.umin.i64(i64 %nonnegative, i64 127)
  %wide.count = zext i64 %count to i128
  %shifted = lshr i128 %value, %wide.count
  %restored = shl i128 %shifted, %wide.count
  %is_inexact = icmp ne i128 %restored, %value
  %odd_bit = zext i1 %is_inexact to i128
  %result = or i128 %shifted, %odd_bit
  ret i128 %result
}
define internal double @ptxlink.directed.fma.f64(double %a, double %b, double %c, i1 %up) {
  ; Return %near, which is rounded to nearest, if the product is zero, or an operand is infinite or NaN: the result is
  ; exact then, or infinite or NaN. The difference %a - %a is NaN if %a is infinite or NaN.
  %near = call double @llvm.fma.f64(double %a, double %b, double %c)
  %a.is_zero = fcmp oeq double %a, 0.0
  %b.is_zero = fcmp oeq double %b, 0.0
  %product.is_zero = or i1 %a.is_zero, %b.is_zero
  %a.special = fsub double %a, %a
  %b.special = fsub double %b, %b
  %c.special = fsub double %c, %c
  %ab.special = fadd double %a.special, %b.special
  %abc.special = fadd double %ab.special, %c.special
  %is_special = fcmp uno double %abc.special, 0.0
  %returns_near = or i1 %product.is_zero, %is_special

  %a.bits = bitcast double %a to i64
  %b.bits = bitcast double %b to i64
  %c.bits = bitcast double %c to i64
  %product.sign = xor i64 %a.bits, %b.bits
  %signs.differ = xor i64 %product.sign, %c.bits
  %subtracts = icmp slt i64 %signs.differ, 0
  %product.is_negative = icmp slt i64 %product.sign, 0

  ; Shift the product (p) and the addend (c) left so that their highest bits are at 124 or 125. A double is its
  ; significand times 2**(biased exponent - 1075). So the bit 0 of p has the exponent (a + b - 2 * 1075 - 20), which is
  ; %p.exponent, and the bit 0 of c the exponent (c - 1075 - 73), which is %c.scaled_exponent. Then shift the one with
  ; the smaller exponent right by the difference.
  %a.significand = call i128 @ptxlink.significand(double %a)
  %b.significand = call i128 @ptxlink.significand(double %b)
  %c.significand = call i128 @ptxlink.significand(double %c)
  %product = mul i128 %a.significand, %b.significand
  %p.top = shl i128 %product, 20
  %c.top = shl i128 %c.significand, 73
  %a.exponent = call i64 @ptxlink.exponent(double %a)
  %b.exponent = call i64 @ptxlink.exponent(double %b)
  %c.exponent = call i64 @ptxlink.exponent(double %c)
  %ab.exponent = add i64 %a.exponent, %b.exponent
  %p.exponent = sub i64 %ab.exponent, 2170
  %c.scaled_exponent = sub i64 %c.exponent, 1148
  %c.distance = sub i64 %p.exponent, %c.scaled_exponent
  %p.distance = sub i64 0, %c.distance
  %c.is_zero = icmp eq i128 %c.significand, 0
  %p.shift = select i1 %c.is_zero, i64 0, i64 %p.distance
  %p.aligned = call i128 @ptxlink.shift_to_odd(i128 %p.top, i64 %p.shift)
  %c.aligned = call i128 @ptxlink.shift_to_odd(i128 %c.top, i64 %c.distance)
  %larger_exponent = call i64 @llvm.smax.i64(i64 %p.exponent, i64 %c.scaled_exponent)
  %sum.exponent = select i1 %c.is_zero, i64 %p.exponent, i64 %larger_exponent

  ; Add the magnitudes, or subtract the smaller from the larger.
  %sum = add i128 %p.aligned, %c.aligned
  %difference = sub i128 %p.aligned, %c.aligned
  %c_is_larger = icmp ult i128 %p.aligned, %c.aligned
  %reversed_difference = sub i128 %c.aligned, %p.aligned
  %absolute_difference = select i1 %c_is_larger, i128 %reversed_difference, i128 %difference
  %total = select i1 %subtracts, i128 %absolute_difference, i128 %sum
  %takes_c_sign = and i1 %subtracts, %c_is_larger
  %is_negative = xor i1 %product.is_negative, %takes_c_sign

  ; Normalise: move the highest bit to 127, which has the biased exponent (exponent of bit 0 + 127 + 1023), then to 126.
  ; The 53 bits of a normal result begin at bit 74, those of a subnormal result above that. The highest of the 53 bits
  ; is the lowest of the exponent's field, and adds 1 there, so %exponent_field is less by 1. 9218868437227405311 is the
  ; largest finite number.
  %zeros = call i128 @llvm.ctlz.i128(i128 %total, i1 false)
  %zeros.i64 = trunc i128 %zeros to i64
  %is_zero = icmp eq i128 %total, 0
  %count = select i1 %is_zero, i128 0, i128 %zeros
  %normalised = shl i128 %total, %count
  %unrounded = call i128 @ptxlink.shift_to_odd(i128 %normalised, i64 1)
  %exponent.raised = sub i64 %sum.exponent, %zeros.i64
  %exponent = add i64 %exponent.raised, 1150
  %subnormal_shift = sub i64 1, %exponent
  %extra_shift = call i64 @llvm.smax.i64(i64 %subnormal_shift, i64 0)
  %shift = add i64 %extra_shift, 74
  %bounded_shift = call i64 @llvm.umin.i64(i64 %shift, i64 127)
  %wide_shift = zext i64 %bounded_shift to i128
  %digits = lshr i128 %unrounded, %wide_shift
  %truncated = shl i128 %digits, %wide_shift
  %is_inexact = icmp ne i128 %truncated, %unrounded
  %digits.i64 = trunc i128 %digits to i64
  %biased_exponent = call i64 @llvm.smax.i64(i64 %exponent, i64 1)
  %exponent_field = sub i64 %biased_exponent, 1
  %shifted_exponent = shl i64 %exponent_field, 52
  %unlimited.bits = add i64 %shifted_exponent, %digits.i64
  %overflows = icmp sge i64 %exponent, 2047
  %limited.bits = select i1 %overflows, i64 9218868437227405311, i64 %unlimited.bits
  %is_truncated = or i1 %is_inexact, %overflows
  %is_positive = xor i1 %is_negative, true
  %rounds_up = and i1 %up, %is_positive
  %increments = and i1 %rounds_up, %is_truncated
  %increment = zext i1 %increments to i64
  %rounded.bits = add i64 %limited.bits, %increment
  %sign.bit = select i1 %is_negative, i64 -9223372036854775808, i64 0
  %signed.bits = or i64 %rounded.bits, %sign.bit
  %nonzero_value = bitcast i64 %signed.bits to double
  %sum_value = select i1 %is_zero, double 0.0, double %nonzero_value
  %result = select i1 %returns_near, double %near, double %sum_value
  ret double %result
}
define internal double @ptxlink.directed.step.f64(double %near, double %error, double %negated.error, i1 %up) {
  ; %near was rounded to nearest: return it, or its neighbour if that is the result in the direction. %error is the
  ; difference (exact result - %near) times a positive number, and %negated.error is (%near - exact result) times this
  ; number. Both are rounded up, so that no positive difference becomes 0.
  %is_below = fcmp ogt double %error, 0.0
  %is_above = fcmp ogt double %negated.error, 0.0
  %bits = bitcast double %near to i64
  %is_negative = icmp slt i64 %bits, 0
  %is_zero = fcmp oeq double %near, 0.0
  %step = select i1 %is_negative, i64 -1, i64 1
  %neighbour = add i64 %bits, %step
  %next_up = select i1 %is_zero, i64 1, i64 %neighbour
  %rounded_up = select i1 %is_below, i64 %next_up, i64 %bits
  %is_too_large = select i1 %is_negative, i1 %is_below, i1 %is_above
  %next_to_zero = sub i64 %bits, 1
  %rounded_to_zero = select i1 %is_too_large, i64 %next_to_zero, i64 %bits
  %result.bits = select i1 %up, i64 %rounded_up, i64 %rounded_to_zero
  %result = bitcast i64 %result.bits to double
  ret double %result
}
define internal double @ptxlink.directed.fdiv.f64(double %a, double %b, i1 %up) {
  %near = fdiv double %a, %b
  %b.bits = bitcast double %b to i64
  %b.is_negative = icmp slt i64 %b.bits, 0
  %negated = fneg double %near
  %negated.a = fneg double %a
  %remainder = call double @ptxlink.directed.fma.f64(double %negated, double %b, double %a, i1 true)
  %negated.remainder = call double @ptxlink.directed.fma.f64(double %near, double %b, double %negated.a, i1 true)
  %error = select i1 %b.is_negative, double %negated.remainder, double %remainder
  %negated.error = select i1 %b.is_negative, double %remainder, double %negated.remainder
  %result = call double @ptxlink.directed.step.f64(double %near, double %error, double %negated.error, i1 %up)
  ret double %result
}
define internal double @ptxlink.directed.sqrt.f64(double %a, i1 %up) {
  %near = call double @llvm.sqrt.f64(double %a)
  %negated = fneg double %near
  %negated.a = fneg double %a
  %error = call double @ptxlink.directed.fma.f64(double %negated, double %near, double %a, i1 true)
  %negated.error = call double @ptxlink.directed.fma.f64(double %near, double %near, double %negated.a, i1 true)
  %result = call double @ptxlink.directed.step.f64(double %near, double %error, double %negated.error, i1 %up)
  ret double %result
}

; Tags of accesses for alias analysis: memory of the runtime (!1) never overlaps memory that PTX accesses (!2). Weights
; of branches: the first target is much more frequent (!5).

!0 = !{!"numba-ptxlink"}
!1 = !{!3, !3, i64 0}
!2 = !{!4, !4, i64 0}
!3 = !{!"runtime", !0, i64 0}
!4 = !{!"program", !0, i64 0}
!5 = !{!"branch_weights", i32 2000, i32 1}
