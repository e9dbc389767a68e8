; The table of operations, which `arithmetic.operations` reads. An operation is a header and a body, for example:
;
;     mul.wide: k w
;         wide_a = {extend} {raw} {a} to {wide}
;         wide_b = {extend} {raw} {b} to {wide}
;         result = mul {wide} {wide_a}, {wide_b}
;
; Before the colon, the header has one or several names. A name is an opcode with modifiers, which may end with a kind
; of type (.s signed, .u unsigned, .f float) or a type (.f64); `arithmetic.find_operation` takes the most specific name
; for an instruction. After the colon are two words: letters for the types of the sources, of which the last letter is
; also for all further sources, and the letter for the type of the result. The letter k is the last type of the
; instruction, w the same with twice the width, u is u32, l is u64, and p a predicate.
;
; The body computes the result, which is the value of the last line. Each line gives a name to a value, and later lines
; refer to the value by the name in braces. `arithmetic.expand_operation` defines these names:
;
;     {a} {b} {c} {d}   the operands
;     {opcode}          the opcode
;     {raw} {wide}      the integer types with the width of k, and with twice this width
;     {bits} {top_bit}  the number of bits of {raw}, and the position of the highest one
;     {ir} {suffix}     the type that LLVM computes with (float for 16-bit floats), and the ending of its intrinsics
;     {smallest}        the smallest normal number of the float type k
;     {letter}          s if k is signed, else u
;     {extend}          sext if k is signed, else zext
;     {extend_first}    {extend} for the first type of the instruction in place of k
;     {shift}           shl for the opcode shl; else ashr if k is signed, else lshr
;
; An operation without types of sources is expanded by `Translator.expand`, whose caller passes values by name. A name
; that is not passed, such as {ntid[0]}, is a field of BlockContext. A line has to be an instruction: `or` with 0 copies
; a value. A number is converted between {raw} and i32 through i128, since {raw} may be narrower than i32, as wide, or
; wider, and no instruction of LLVM converts all three.
add sub and or xor: k k
    result = {opcode} {raw} {a}, {b}
add.sat.s sub.sat.s: k k
    result = call {raw} @llvm.s{opcode}.sat.{raw}({raw} {a}, {raw} {b})
mul.lo: k k
    result = mul {raw} {a}, {b}
mad.lo: k k
    product = mul {raw} {a}, {b}
    result = add {raw} {product}, {c}
mul.wide: k w
    wide_a = {extend} {raw} {a} to {wide}
    wide_b = {extend} {raw} {b} to {wide}
    result = mul {wide} {wide_a}, {wide_b}
mad.wide: kkw w
    wide_a = {extend} {raw} {a} to {wide}
    wide_b = {extend} {raw} {b} to {wide}
    product = mul {wide} {wide_a}, {wide_b}
    result = add {wide} {product}, {c}
mul.hi: k k
    wide_a = {extend} {raw} {a} to {wide}
    wide_b = {extend} {raw} {b} to {wide}
    product = mul {wide} {wide_a}, {wide_b}
    shifted = lshr {wide} {product}, {bits}
    result = trunc {wide} {shifted} to {raw}
mad.hi: k k
    wide_a = {extend} {raw} {a} to {wide}
    wide_b = {extend} {raw} {b} to {wide}
    product = mul {wide} {wide_a}, {wide_b}
    shifted = lshr {wide} {product}, {bits}
    upper_half = trunc {wide} {shifted} to {raw}
    result = add {raw} {upper_half}, {c}
; Multiply the lowest 24 bits of a and b; `.hi` takes the bits 16 to 47 of the product.
mul24.lo: k k
    shifted_a = shl i32 {a}, 8
    shifted_b = shl i32 {b}, 8
    a24 = {shift} i32 {shifted_a}, 8
    b24 = {shift} i32 {shifted_b}, 8
    result = mul i32 {a24}, {b24}
mad24.lo: k k
    shifted_a = shl i32 {a}, 8
    shifted_b = shl i32 {b}, 8
    a24 = {shift} i32 {shifted_a}, 8
    b24 = {shift} i32 {shifted_b}, 8
    product = mul i32 {a24}, {b24}
    result = add i32 {product}, {c}
mul24.hi: k k
    shifted_a = shl i32 {a}, 8
    shifted_b = shl i32 {b}, 8
    a24 = {shift} i32 {shifted_a}, 8
    b24 = {shift} i32 {shifted_b}, 8
    wide_a = {extend} i32 {a24} to i64
    wide_b = {extend} i32 {b24} to i64
    product = mul i64 {wide_a}, {wide_b}
    shifted = lshr i64 {product}, 16
    result = trunc i64 {shifted} to i32
mad24.hi: k k
    shifted_a = shl i32 {a}, 8
    shifted_b = shl i32 {b}, 8
    a24 = {shift} i32 {shifted_a}, 8
    b24 = {shift} i32 {shifted_b}, 8
    wide_a = {extend} i32 {a24} to i64
    wide_b = {extend} i32 {b24} to i64
    product = mul i64 {wide_a}, {wide_b}
    shifted = lshr i64 {product}, 16
    upper_half = trunc i64 {shifted} to i32
    result = add i32 {upper_half}, {c}
mad24.hi.sat: k k
    shifted_a = shl i32 {a}, 8
    shifted_b = shl i32 {b}, 8
    a24 = {shift} i32 {shifted_a}, 8
    b24 = {shift} i32 {shifted_b}, 8
    wide_a = {extend} i32 {a24} to i64
    wide_b = {extend} i32 {b24} to i64
    product = mul i64 {wide_a}, {wide_b}
    shifted = lshr i64 {product}, 16
    upper_half = trunc i64 {shifted} to i32
    result = call i32 @llvm.sadd.sat.i32(i32 {upper_half}, i32 {c})
mad.hi.sat.s32: k k
    wide_a = sext i32 {a} to i64
    wide_b = sext i32 {b} to i64
    product = mul i64 {wide_a}, {wide_b}
    shifted = lshr i64 {product}, 32
    upper_half = trunc i64 {shifted} to i32
    result = call i32 @llvm.sadd.sat.i32(i32 {upper_half}, i32 {c})
; x86 traps on x / 0 and INT_MIN / -1, so divide by 1 in these cases. For a divisor of 0, a GPU returns all ones; a
; quotient by -1 is the negated dividend.
div.u rem.u: k k
    is_zero = icmp eq {raw} {b}, 0
    divisor = select i1 {is_zero}, {raw} 1, {raw} {b}
    quotient_or_remainder = u{opcode} {raw} {a}, {divisor}
    result = select i1 {is_zero}, {raw} -1, {raw} {quotient_or_remainder}
div.s: k k
    is_zero = icmp eq {raw} {b}, 0
    is_minus_one = icmp eq {raw} {b}, -1
    would_trap = or i1 {is_zero}, {is_minus_one}
    divisor = select i1 {would_trap}, {raw} 1, {raw} {b}
    quotient = sdiv {raw} {a}, {divisor}
    negated = sub {raw} 0, {a}
    signed_quotient = select i1 {is_minus_one}, {raw} {negated}, {raw} {quotient}
    result = select i1 {is_zero}, {raw} -1, {raw} {signed_quotient}
rem.s: k k
    is_zero = icmp eq {raw} {b}, 0
    is_minus_one = icmp eq {raw} {b}, -1
    would_trap = or i1 {is_zero}, {is_minus_one}
    divisor = select i1 {would_trap}, {raw} 1, {raw} {b}
    remainder = srem {raw} {a}, {divisor}
    result = select i1 {is_zero}, {raw} -1, {raw} {remainder}
neg: k k
    result = sub {raw} 0, {a}
not: k k
    result = xor {raw} {a}, -1
cnot: k k
    is_zero = icmp eq {raw} {a}, 0
    result = zext i1 {is_zero} to {raw}
abs: k k
    result = call {raw} @llvm.abs.{raw}({raw} {a}, i1 false)
brev: k k
    result = call {raw} @llvm.bitreverse.{raw}({raw} {a})
popc: k u
    count = call {raw} @llvm.ctpop.{raw}({raw} {a})
    wide = zext {raw} {count} to i128
    result = trunc i128 {wide} to i32
clz: k u
    count = call {raw} @llvm.ctlz.{raw}({raw} {a}, i1 false)
    wide = zext {raw} {count} to i128
    result = trunc i128 {wide} to i32
; The position of the highest bit that is 1, or for signed numbers (`.s`) that differs from the sign. With `.shiftamt`,
; the distance by which a left shift moves that bit to the top. -1 if there is no such bit.
bfind: k u
    is_zero = icmp eq {raw} {a}, 0
    zeros = call {raw} @llvm.ctlz.{raw}({raw} {a}, i1 false)
    position = sub {raw} {top_bit}, {zeros}
    found = select i1 {is_zero}, {raw} -1, {raw} {position}
    wide = zext {raw} {found} to i128
    result = trunc i128 {wide} to i32
bfind.s: k u
    sign = ashr {raw} {a}, {top_bit}
    magnitude = xor {raw} {a}, {sign}
    is_zero = icmp eq {raw} {magnitude}, 0
    zeros = call {raw} @llvm.ctlz.{raw}({raw} {magnitude}, i1 false)
    position = sub {raw} {top_bit}, {zeros}
    found = select i1 {is_zero}, {raw} -1, {raw} {position}
    wide = zext {raw} {found} to i128
    result = trunc i128 {wide} to i32
bfind.shiftamt: k u
    is_zero = icmp eq {raw} {a}, 0
    zeros = call {raw} @llvm.ctlz.{raw}({raw} {a}, i1 false)
    found = select i1 {is_zero}, {raw} -1, {raw} {zeros}
    wide = zext {raw} {found} to i128
    result = trunc i128 {wide} to i32
bfind.shiftamt.s: k u
    sign = ashr {raw} {a}, {top_bit}
    magnitude = xor {raw} {a}, {sign}
    is_zero = icmp eq {raw} {magnitude}, 0
    zeros = call {raw} @llvm.ctlz.{raw}({raw} {magnitude}, i1 false)
    found = select i1 {is_zero}, {raw} -1, {raw} {zeros}
    wide = zext {raw} {found} to i128
    result = trunc i128 {wide} to i32
min max: k k
    result = call {raw} @llvm.{letter}{opcode}.{raw}({raw} {a}, {raw} {b})
min.relu.s max.relu.s: k k
    extremum = call {raw} @llvm.s{opcode}.{raw}({raw} {a}, {raw} {b})
    result = call {raw} @llvm.smax.{raw}({raw} {extremum}, {raw} 0)
; Multiply the four bytes of a by those of b, and add the products to c.
dp4a: u u
    left0 = call i32 @ptxlink.{extend_first}.byte(i32 {a}, i32 0)
    right0 = call i32 @ptxlink.{extend}.byte(i32 {b}, i32 0)
    product0 = mul i32 {left0}, {right0}
    left1 = call i32 @ptxlink.{extend_first}.byte(i32 {a}, i32 8)
    right1 = call i32 @ptxlink.{extend}.byte(i32 {b}, i32 8)
    product1 = mul i32 {left1}, {right1}
    left2 = call i32 @ptxlink.{extend_first}.byte(i32 {a}, i32 16)
    right2 = call i32 @ptxlink.{extend}.byte(i32 {b}, i32 16)
    product2 = mul i32 {left2}, {right2}
    left3 = call i32 @ptxlink.{extend_first}.byte(i32 {a}, i32 24)
    right3 = call i32 @ptxlink.{extend}.byte(i32 {b}, i32 24)
    product3 = mul i32 {left3}, {right3}
    sum0 = add i32 {c}, {product0}
    sum1 = add i32 {sum0}, {product1}
    sum2 = add i32 {sum1}, {product2}
    result = add i32 {sum2}, {product3}
; Multiply the lower (`.lo`) or upper (`.hi`) two bytes of b by the two 16-bit halves of a, and add the products to c.
dp2a.lo: u u
    left0 = call i32 @ptxlink.{extend_first}.half(i32 {a}, i32 0)
    right0 = call i32 @ptxlink.{extend}.byte(i32 {b}, i32 0)
    product0 = mul i32 {left0}, {right0}
    left1 = call i32 @ptxlink.{extend_first}.half(i32 {a}, i32 16)
    right1 = call i32 @ptxlink.{extend}.byte(i32 {b}, i32 8)
    product1 = mul i32 {left1}, {right1}
    sum0 = add i32 {c}, {product0}
    result = add i32 {sum0}, {product1}
dp2a.hi: u u
    left0 = call i32 @ptxlink.{extend_first}.half(i32 {a}, i32 0)
    right0 = call i32 @ptxlink.{extend}.byte(i32 {b}, i32 16)
    product0 = mul i32 {left0}, {right0}
    left1 = call i32 @ptxlink.{extend_first}.half(i32 {a}, i32 16)
    right1 = call i32 @ptxlink.{extend}.byte(i32 {b}, i32 24)
    product1 = mul i32 {left1}, {right1}
    sum0 = add i32 {c}, {product0}
    result = add i32 {sum0}, {product1}
; Add the distance between a and b to c.
sad: k k
    maximum = call {raw} @llvm.{letter}max.{raw}({raw} {a}, {raw} {b})
    minimum = call {raw} @llvm.{letter}min.{raw}({raw} {a}, {raw} {b})
    distance = sub {raw} {maximum}, {minimum}
    result = add {raw} {c}, {distance}
; In PTX, a shift by the width or more returns 0, or copies of the sign. In LLVM, the result of such a shift is
; undefined.
shl shr: ku k
    is_too_far = icmp uge i32 {b}, {bits}
    distance = call i32 @llvm.umin.i32(i32 {b}, i32 {top_bit})
    wide_distance = zext i32 {distance} to i128
    converted = trunc i128 {wide_distance} to {raw}
    shifted = {shift} {raw} {a}, {converted}
    result = select i1 {is_too_far}, {raw} 0, {raw} {shifted}
shr.s: ku k
    distance = call i32 @llvm.umin.i32(i32 {b}, i32 {top_bit})
    wide_distance = zext i32 {distance} to i128
    converted = trunc i128 {wide_distance} to {raw}
    result = ashr {raw} {a}, {converted}
; The funnel shift: shift the 64 bits with the upper half b and the lower half a by {c} bits; return the upper half
; (`.l`) or the lower half (`.r`). A distance of 32 or more is taken modulo 32 (`.wrap`), or as 32 (`.clamp`).
shf.l.wrap: u u
    result = call i32 @llvm.fshl.i32(i32 {b}, i32 {a}, i32 {c})
shf.r.wrap: u u
    result = call i32 @llvm.fshr.i32(i32 {b}, i32 {a}, i32 {c})
shf.l.clamp: u u
    is_too_far = icmp uge i32 {c}, 32
    shifted = call i32 @llvm.fshl.i32(i32 {b}, i32 {a}, i32 {c})
    result = select i1 {is_too_far}, i32 {a}, i32 {shifted}
shf.r.clamp: u u
    is_too_far = icmp uge i32 {c}, 32
    shifted = call i32 @llvm.fshr.i32(i32 {b}, i32 {a}, i32 {c})
    result = select i1 {is_too_far}, i32 {b}, i32 {shifted}
; Extract {c} bits of a from the position {b} on. Only the lowest 8 bits of {b} and {c} count.
bfe: kuu k
    position = and i32 {b}, 255
    length = and i32 {c}, 255
    distance = call i128 @ptxlink.clamp(i32 {position}, i32 {bits})
    mask = call i128 @ptxlink.ones(i32 {length}, i32 {bits})
    wide = zext {raw} {a} to i128
    shifted = lshr i128 {wide}, {distance}
    field = and i128 {shifted}, {mask}
    result = trunc i128 {field} to {raw}
; Extract with sign: copy the field's highest bit, or the register's if the field extends beyond it, to the bits above.
bfe.s: kuu k
    position = and i32 {b}, 255
    length = and i32 {c}, 255
    distance = call i128 @ptxlink.clamp(i32 {position}, i32 {bits})
    mask = call i128 @ptxlink.ones(i32 {length}, i32 {bits})
    wide = sext {raw} {a} to i128
    shifted = ashr i128 {wide}, {distance}
    field = and i128 {shifted}, {mask}
    mask_below_sign = lshr i128 {mask}, 1
    sign_bit = xor i128 {mask_below_sign}, {mask}
    sign = and i128 {shifted}, {sign_bit}
    is_negative = icmp ne i128 {sign}, 0
    bits_above = xor i128 {mask}, -1
    extended = or i128 {field}, {bits_above}
    signed_field = select i1 {is_negative}, i128 {extended}, i128 {field}
    result = trunc i128 {signed_field} to {raw}
; Insert the lowest {d} bits of a into b at the position {c}. Only the lowest 8 bits of {c} and {d} count.
bfi: kku k
    position = and i32 {c}, 255
    length = and i32 {d}, 255
    distance = call i128 @ptxlink.clamp(i32 {position}, i32 {bits})
    unshifted_mask = call i128 @ptxlink.ones(i32 {length}, i32 {bits})
    mask = shl i128 {unshifted_mask}, {distance}
    wide = zext {raw} {a} to i128
    shifted = shl i128 {wide}, {distance}
    inserted = and i128 {shifted}, {mask}
    inverse_mask = xor i128 {mask}, -1
    wide_b = zext {raw} {b} to i128
    kept = and i128 {wide_b}, {inverse_mask}
    combined = or i128 {inserted}, {kept}
    result = trunc i128 {combined} to {raw}
; A mask of {b} bits from the position {a} on. Numbers of 32 or more are taken as 32 (`.clamp`), or modulo 32 (`.wrap`).
bmsk.clamp: u u
    distance = call i128 @ptxlink.clamp(i32 {a}, i32 {bits})
    ones = call i128 @ptxlink.ones(i32 {b}, i32 {bits})
    shifted = shl i128 {ones}, {distance}
    result = trunc i128 {shifted} to i32
bmsk.wrap: u u
    position = and i32 {a}, 31
    length = and i32 {b}, 31
    distance = call i128 @ptxlink.clamp(i32 {position}, i32 {bits})
    ones = call i128 @ptxlink.ones(i32 {length}, i32 {bits})
    shifted = shl i128 {ones}, {distance}
    result = trunc i128 {shifted} to i32
; Extend the lowest {b} bits of a; {b} is limited to 32 (`.clamp`), or taken modulo 32 (`.wrap`). For a signed number,
; flipping the sign bit and subtracting its value copies the sign to the bits above.
szext.clamp.u: ku k
    ones = call i128 @ptxlink.ones(i32 {b}, i32 32)
    mask = trunc i128 {ones} to i32
    result = and i32 {a}, {mask}
szext.wrap.u: ku k
    length = and i32 {b}, 31
    ones = call i128 @ptxlink.ones(i32 {length}, i32 32)
    mask = trunc i128 {ones} to i32
    result = and i32 {a}, {mask}
szext.clamp.s: ku k
    ones = call i128 @ptxlink.ones(i32 {b}, i32 32)
    mask = trunc i128 {ones} to i32
    field = and i32 {a}, {mask}
    mask_below_sign = lshr i32 {mask}, 1
    sign_bit = xor i32 {mask}, {mask_below_sign}
    flipped = xor i32 {field}, {sign_bit}
    result = sub i32 {flipped}, {sign_bit}
szext.wrap.s: ku k
    length = and i32 {b}, 31
    ones = call i128 @ptxlink.ones(i32 {length}, i32 32)
    mask = trunc i128 {ones} to i32
    field = and i32 {a}, {mask}
    mask_below_sign = lshr i32 {mask}, 1
    sign_bit = xor i32 {mask}, {mask_below_sign}
    flipped = xor i32 {field}, {sign_bit}
    result = sub i32 {flipped}, {sign_bit}
fns: u u
    result = call i32 @ptxlink.find_nth_set(i32 {a}, i32 {b}, i32 {c})
; The selector of a mode of `prmt`: {selectors} has four selectors of 16 bits, for the values 0 to 3 of {control}.
prmt.mode:
    index = and i32 {control}, 3
    distance = shl i32 {index}, 4
    wide_distance = zext i32 {distance} to i64
    shifted = lshr i64 {selectors}, {wide_distance}
    low_bits = and i64 {shifted}, 65535
    selector = trunc i64 {low_bits} to i32
; Each nibble of c selects one of eight bytes by its lower 3 bits; if its top bit is 1, the result is the sign of that
; byte in all 8 bits.
prmt: u u
    wide_b = zext i32 {b} to i64
    wide_a = zext i32 {a} to i64
    upper_bytes = shl i64 {wide_b}, 32
    bytes = or i64 {upper_bytes}, {wide_a}
    byte0 = call i32 @ptxlink.permute(i64 {bytes}, i32 {c}, i32 0)
    byte1 = call i32 @ptxlink.permute(i64 {bytes}, i32 {c}, i32 8)
    byte2 = call i32 @ptxlink.permute(i64 {bytes}, i32 {c}, i32 16)
    byte3 = call i32 @ptxlink.permute(i64 {bytes}, i32 {c}, i32 24)
    half0 = or i32 {byte0}, {byte1}
    half1 = or i32 {byte2}, {byte3}
    result = or i32 {half0}, {half1}
; For each bit position, the bits of a, b and c, a the highest, form an index 0 to 7 into the look-up table d of 8 bits.
lop3: u u
    mask0 = call i32 @ptxlink.mask(i32 {d}, i32 0)
    mask1 = call i32 @ptxlink.mask(i32 {d}, i32 1)
    mask2 = call i32 @ptxlink.mask(i32 {d}, i32 2)
    mask3 = call i32 @ptxlink.mask(i32 {d}, i32 3)
    mask4 = call i32 @ptxlink.mask(i32 {d}, i32 4)
    mask5 = call i32 @ptxlink.mask(i32 {d}, i32 5)
    mask6 = call i32 @ptxlink.mask(i32 {d}, i32 6)
    mask7 = call i32 @ptxlink.mask(i32 {d}, i32 7)
    by_c0 = call i32 @ptxlink.choose(i32 {c}, i32 {mask0}, i32 {mask1})
    by_c1 = call i32 @ptxlink.choose(i32 {c}, i32 {mask2}, i32 {mask3})
    by_c2 = call i32 @ptxlink.choose(i32 {c}, i32 {mask4}, i32 {mask5})
    by_c3 = call i32 @ptxlink.choose(i32 {c}, i32 {mask6}, i32 {mask7})
    by_b0 = call i32 @ptxlink.choose(i32 {b}, i32 {by_c0}, i32 {by_c1})
    by_b1 = call i32 @ptxlink.choose(i32 {b}, i32 {by_c2}, i32 {by_c3})
    result = call i32 @ptxlink.choose(i32 {a}, i32 {by_b0}, i32 {by_b1})
add.f sub.f mul.f div.f: k k
    result = f{opcode} {ir} {a}, {b}
; A GPU multiplies by the reciprocal, and flushes a subnormal reciprocal to zero. The product is then zero, or NaN if a
; is infinite. 0x3810000000000000 is the smallest normal float.
div.approx.f: k k
    reciprocal = fdiv float 1.0, {b}
    magnitude = call float @llvm.fabs.f32(float {reciprocal})
    is_subnormal = fcmp olt float {magnitude}, 0x3810000000000000
    signed_zero = call float @llvm.copysign.f32(float 0.0, float {reciprocal})
    zero_product = fmul float {a}, {signed_zero}
    quotient = fdiv float {a}, {b}
    result = select i1 {is_subnormal}, float {zero_product}, float {quotient}
fma.f mad.f: k k
    result = call {ir} @llvm.fma.{suffix}({ir} {a}, {ir} {b}, {ir} {c})
; For f16 and bf16: `fused` rounds the exact sum once, to an odd float, so that the rounding to 16 bits is correct.
fma.f16: k k
    result = call float @ptxlink.fused(float {a}, float {b}, float {c})
min.f max.f: k k
    result = call {ir} @ptxlink.{opcode}.{suffix}({ir} {a}, {ir} {b})
; NaN if an operand is NaN: so is the sum of the operands.
min.NaN.f max.NaN.f: k k
    number = call {ir} @ptxlink.{opcode}.{suffix}({ir} {a}, {ir} {b})
    is_nan = fcmp uno {ir} {a}, {b}
    nan = fadd {ir} {a}, {b}
    result = select i1 {is_nan}, {ir} {nan}, {ir} {number}
neg.f: k k
    result = fneg {ir} {a}
; A double that is NaN keeps its sign, and becomes quiet by the addition.
neg.f64: k k
    negated = fneg double {a}
    is_nan = fcmp uno double {a}, {a}
    quiet_nan = fadd double {a}, {a}
    result = select i1 {is_nan}, double {quiet_nan}, double {negated}
abs.f: k k
    result = call {ir} @llvm.fabs.{suffix}({ir} {a})
copysign.f: k k
    result = call {ir} @llvm.copysign.{suffix}({ir} {b}, {ir} {a})
; LLVM and the C library compute the approximations (`.approx`), so that the last bits differ from those of a GPU.
sqrt.f sqrt.approx.f tanh.approx.f: k k
    result = call {ir} @llvm.{opcode}.{suffix}({ir} {a})
; A GPU multiplies the angle by 1/(2 pi), rounds toward zero to a float, and takes the sine of that many turns. For a
; large angle, the float has few or no bits for the fraction of a turn, so that the sine is inaccurate. Compute the same
; steps in doubles: 0x3FC45F3060000000 is 1/(2 pi) as a float, the mask -536870912 clears the lower 29 bits, which a
; float lacks, and 0x401921FB54442D18 is 2 pi.
sin.approx.f cos.approx.f: k k
    wide_angle = fpext float {a} to double
    turns = fmul double {wide_angle}, 0x3FC45F3060000000
    turns_bits = bitcast double {turns} to i64
    upper_bits = and i64 {turns_bits}, -536870912
    rounded_turns = bitcast i64 {upper_bits} to double
    fraction = frem double {rounded_turns}, 1.0
    reduced_angle = fmul double {fraction}, 0x401921FB54442D18
    wide_result = call double @llvm.{opcode}.f64(double {reduced_angle})
    result = fptrunc double {wide_result} to float
ex2.approx.f: k k
    result = call {ir} @llvm.exp2.{suffix}({ir} {a})
lg2.approx.f: k k
    result = call {ir} @llvm.log2.{suffix}({ir} {a})
rcp.f rcp.approx.f: k k
    result = fdiv {ir} 1.0, {a}
rsqrt.approx.f: k k
    root = call {ir} @llvm.sqrt.{suffix}({ir} {a})
    result = fdiv {ir} 1.0, {root}
; The lower 32 bits of a GPU's result are zero.
rcp.approx.ftz.f64: k k
    exact = fdiv double 1.0, {a}
    bits = bitcast double {exact} to i64
    upper_half = and i64 {bits}, -4294967296
    result = bitcast i64 {upper_half} to double
rsqrt.approx.ftz.f64: k k
    root = call double @llvm.sqrt.f64(double {a})
    exact = fdiv double 1.0, {root}
    bits = bitcast double {exact} to i64
    upper_half = and i64 {bits}, -4294967296
    result = bitcast i64 {upper_half} to double
; Directed rounding: up, or toward zero if {up} is false. A sum is a * 1 + b, and a product a * b + -0, which changes
; nothing.
directed.add:
    result = call {ir} @ptxlink.directed.fma.{suffix}({ir} {a}, {ir} 1.0, {ir} {b}, i1 {up})
directed.sub:
    negated = fneg {ir} {b}
    result = call {ir} @ptxlink.directed.fma.{suffix}({ir} {a}, {ir} 1.0, {ir} {negated}, i1 {up})
directed.mul:
    result = call {ir} @ptxlink.directed.fma.{suffix}({ir} {a}, {ir} {b}, {ir} -0.0, i1 {up})
directed.fma directed.mad:
    result = call {ir} @ptxlink.directed.fma.{suffix}({ir} {a}, {ir} {b}, {ir} {c}, i1 {up})
directed.div:
    result = call {ir} @ptxlink.directed.fdiv.{suffix}({ir} {a}, {ir} {b}, i1 {up})
directed.rcp:
    result = call {ir} @ptxlink.directed.fdiv.{suffix}({ir} 1.0, {ir} {a}, i1 {up})
directed.sqrt:
    result = call {ir} @ptxlink.directed.sqrt.{suffix}({ir} {a}, i1 {up})
directed.narrow:
    result = call float @ptxlink.directed.f32(double {a}, i1 {up})
; The masks of `llvm.is.fpclass` have the bits 1 and 2 for NaN, and two bits for each class of negative and of positive
; numbers: 4 and 512 for infinite, 8 and 256 for normal, 16 and 128 for subnormal, 32 and 64 for zero.
testp.finite.f: k p
    result = call i1 @llvm.is.fpclass.{suffix}({ir} {a}, i32 504)
testp.infinite.f: k p
    result = call i1 @llvm.is.fpclass.{suffix}({ir} {a}, i32 516)
testp.number.f: k p
    result = call i1 @llvm.is.fpclass.{suffix}({ir} {a}, i32 1020)
testp.notanumber.f: k p
    result = call i1 @llvm.is.fpclass.{suffix}({ir} {a}, i32 3)
; In PTX, zeros are normal numbers.
testp.normal.f: k p
    result = call i1 @llvm.is.fpclass.{suffix}({ir} {a}, i32 360)
testp.subnormal.f: k p
    result = call i1 @llvm.is.fpclass.{suffix}({ir} {a}, i32 144)
; Comparisons: lo, ls, hi and hs, for integers, take their operands as unsigned; equ, neu, ltu, leu, gtu and geu, for
; floats, are true if an operand is NaN.
setp.eq: k p
    result = icmp eq {raw} {a}, {b}
setp.ne: k p
    result = icmp ne {raw} {a}, {b}
setp.lt: k p
    result = icmp {letter}lt {raw} {a}, {b}
setp.le: k p
    result = icmp {letter}le {raw} {a}, {b}
setp.gt: k p
    result = icmp {letter}gt {raw} {a}, {b}
setp.ge: k p
    result = icmp {letter}ge {raw} {a}, {b}
setp.lo: k p
    result = icmp ult {raw} {a}, {b}
setp.ls: k p
    result = icmp ule {raw} {a}, {b}
setp.hi: k p
    result = icmp ugt {raw} {a}, {b}
setp.hs: k p
    result = icmp uge {raw} {a}, {b}
setp.eq.f: k p
    result = fcmp oeq {ir} {a}, {b}
setp.ne.f: k p
    result = fcmp one {ir} {a}, {b}
setp.lt.f: k p
    result = fcmp olt {ir} {a}, {b}
setp.le.f: k p
    result = fcmp ole {ir} {a}, {b}
setp.gt.f: k p
    result = fcmp ogt {ir} {a}, {b}
setp.ge.f: k p
    result = fcmp oge {ir} {a}, {b}
setp.equ.f: k p
    result = fcmp ueq {ir} {a}, {b}
setp.neu.f: k p
    result = fcmp une {ir} {a}, {b}
setp.ltu.f: k p
    result = fcmp ult {ir} {a}, {b}
setp.leu.f: k p
    result = fcmp ule {ir} {a}, {b}
setp.gtu.f: k p
    result = fcmp ugt {ir} {a}, {b}
setp.geu.f: k p
    result = fcmp uge {ir} {a}, {b}
setp.num.f: k p
    result = fcmp ord {ir} {a}, {b}
setp.nan.f: k p
    result = fcmp uno {ir} {a}, {b}
; Modifiers of floats: `.ftz` replaces a subnormal by a zero of its sign, `.sat` clamps to [0, 1], `.relu` to >= 0.
flush.f: k k
    magnitude = call {ir} @llvm.fabs.{suffix}({ir} {a})
    signed_zero = call {ir} @llvm.copysign.{suffix}({ir} 0.0, {ir} {a})
    is_subnormal = fcmp olt {ir} {magnitude}, {smallest}
    result = select i1 {is_subnormal}, {ir} {signed_zero}, {ir} {a}
sat.f: k k
    is_positive = fcmp ogt {ir} {a}, 0.0
    not_negative = select i1 {is_positive}, {ir} {a}, {ir} 0.0
    is_below_one = fcmp olt {ir} {not_negative}, 1.0
    result = select i1 {is_below_one}, {ir} {not_negative}, {ir} 1.0
relu.f: k k
    is_positive_or_nan = fcmp ugt {ir} {a}, 0.0
    result = select i1 {is_positive_or_nan}, {ir} {a}, {ir} 0.0
; Floats to integers. NaN becomes {nan_result}, which is 0, or only the highest bit if one of the types has 64 bits.
cvt.integer:
    rounded = call {ir} @llvm.{rounding}.{suffix}({ir} {value})
    number = call {raw} @llvm.fpto{letter}i.sat.{raw}.{suffix}({ir} {rounded})
    is_nan = fcmp uno {ir} {value}, {value}
    result = select i1 {is_nan}, {raw} {nan_result}, {raw} {number}
; Limit an integer to the range from {low} to {high}.
cvt.sat:
    raised = call i128 @llvm.smax.i128(i128 {value}, i128 {low})
    result = call i128 @llvm.smin.i128(i128 {raised}, i128 {high})
; Round a large integer to odd: clear the lower 11 of 64 bits, which a double may lack, and if one of them was 1, set
; the bit above them. The conversion to a double is then exact, and later rounding to a smaller float is correct. The
; {count} integers from -{negated_minimum} on are exact in a double, and stay as they are.
cvt.round_to_odd:
    index = add i64 {value}, {negated_minimum}
    is_exact = icmp ult i64 {index}, {count}
    lower_bits = and i64 {value}, 2047
    has_lower_bits = icmp ne i64 {lower_bits}, 0
    upper_bits = and i64 {value}, -2048
    odd_bit = select i1 {has_lower_bits}, i64 2048, i64 0
    rounded = or i64 {upper_bits}, {odd_bit}
    result = select i1 {is_exact}, i64 {value}, i64 {rounded}
; Special registers.
%tid.x: u
    result = or i32 %tx, 0
%tid.y: u
    result = or i32 %ty, 0
%tid.z: u
    result = or i32 %tz, 0
%ntid.x: u
    result = or i32 {ntid[0]}, 0
%ntid.y: u
    result = or i32 {ntid[1]}, 0
%ntid.z: u
    result = or i32 {ntid[2]}, 0
%ctaid.x: u
    result = or i32 {ctaid[0]}, 0
%ctaid.y: u
    result = or i32 {ctaid[1]}, 0
%ctaid.z: u
    result = or i32 {ctaid[2]}, 0
%nctaid.x: u
    result = or i32 {nctaid[0]}, 0
%nctaid.y: u
    result = or i32 {nctaid[1]}, 0
%nctaid.z: u
    result = or i32 {nctaid[2]}, 0
%laneid: u
    result = and i32 {current_thread}, 31
%warpid: u
    result = lshr i32 {current_thread}, 5
%nwarpid: u
    rounded_up = add i32 {thread_count}, 31
    result = lshr i32 {rounded_up}, 5
%lanemask_eq: u
    lane = and i32 {current_thread}, 31
    result = shl i32 1, {lane}
%lanemask_lt: u
    lane = and i32 {current_thread}, 31
    mask_above = shl i32 -1, {lane}
    result = xor i32 {mask_above}, -1
%lanemask_le: u
    lane = and i32 {current_thread}, 31
    mask_above = shl i32 -2, {lane}
    result = xor i32 {mask_above}, -1
%lanemask_gt: u
    lane = and i32 {current_thread}, 31
    result = shl i32 -2, {lane}
%lanemask_ge: u
    lane = and i32 {current_thread}, 31
    result = shl i32 -1, {lane}
%dynamic_smem_size: u
    result = or i32 {dynamic_shared_size}, 0
%total_smem_size %aggr_smem_size: u
    result = trunc i64 {shared_size} to i32
; The upper and the lower half of the address of the workspace of the grid barrier.
%envreg1: u
    upper_half = lshr i64 {workspace}, 32
    result = trunc i64 {upper_half} to i32
%envreg2: u
    result = trunc i64 {workspace} to i32
; The CPU is a device of one multiprocessor, with clusters of one block.
%smid %gridid %cluster_ctarank %is_explicit_cluster: u
    result = or i32 0, 0
%cluster_ctaid.x %cluster_ctaid.y %cluster_ctaid.z: u
    result = or i32 0, 0
%nsmid %cluster_nctarank %cluster_nctaid.x %cluster_nctaid.y %cluster_nctaid.z: u
    result = or i32 1, 0
WARP_SZ: u
    result = or i32 32, 0
; A register of 32 bits, such as %clock, gets the lower half of the result.
%clock %clock64: l
    result = call i64 @llvm.readcyclecounter()
%clock_hi: l
    cycles = call i64 @llvm.readcyclecounter()
    result = lshr i64 {cycles}, 32
%globaltimer %globaltimer_lo: l
    result = call i64 @ptxlink.time()
%globaltimer_hi: l
    time = call i64 @ptxlink.time()
    result = lshr i64 {time}, 32
; Whether an access of {mask} + 1 bytes is aligned and in bounds: for `cached`, in the region at {low} that the
; instruction used last; for `local`, in the local memory of the thread, which ends at {limit}; for `shared`, in the
; shared memory of the block. {offset_limit} is the size of this memory, less {mask}. {value} is the address of the
; access, and {offset} its offset in this memory.
access.cached:
    distance = sub i64 {value}, {low}
    is_near = icmp ult i64 {distance}, {offset_limit}
    misalignment = and i64 {value}, {mask}
    is_aligned = icmp eq i64 {misalignment}, 0
    in_bounds = and i1 {is_near}, {is_aligned}
access.local:
    start = sub i64 {limit}, {local_size}
    offset = sub i64 {value}, {start}
    offset_limit = call i64 @llvm.usub.sat.i64(i64 {local_size}, i64 {mask})
    in_bounds = icmp ult i64 {offset}, {offset_limit}
    misalignment = and i64 {value}, {mask}
    is_aligned = icmp eq i64 {misalignment}, 0
    allowed = and i1 {in_bounds}, {is_aligned}
access.shared:
    offset_limit = call i64 @llvm.usub.sat.i64(i64 {shared_size}, i64 {mask})
    in_bounds = icmp ult i64 {offset}, {offset_limit}
    misalignment = and i64 {offset}, {mask}
    is_aligned = icmp eq i64 {misalignment}, 0
    allowed = and i1 {in_bounds}, {is_aligned}
; The address of a local or constant variable. In PTX with short pointers, {value} has only the lower 32 bits of the
; address: return the address with these bits that is nearest to {base}.
address.restore:
    distance = sub i64 {value}, {base}
    lower_half = trunc i64 {distance} to i32
    wide = sext i32 {lower_half} to i64
    result = add i64 {base}, {wide}
; Whether the address {value} is in a state space. Shared memory begins at {shared_base} + {shared_start}; an address
; that is neither in shared nor in local memory is global.
isspacep.shared: p
    start = add i64 {shared_base}, {shared_start}
    position = sub i64 {value}, {start}
    result = icmp ult i64 {position}, {shared_size}
isspacep.local: p
    distance = sub i64 {value}, {local_base}
    result = icmp ult i64 {distance}, {local_total_size}
isspacep.global: p
    start = add i64 {shared_base}, {shared_start}
    position = sub i64 {value}, {start}
    is_shared = icmp ult i64 {position}, {shared_size}
    distance = sub i64 {value}, {local_base}
    is_local = icmp ult i64 {distance}, {local_total_size}
    either = or i1 {is_shared}, {is_local}
    result = xor i1 {either}, true
; For `vote`, {group} is the mask of the lanes that take part, and {hits} the mask of the lanes whose predicate is true.
; For `bar`, {group} and {hits} are numbers of threads.
vote.ballot bar.popc: u
    result = or i32 {hits}, 0
vote.all bar.and: p
    result = icmp eq i32 {hits}, {group}
vote.any bar.or: p
    result = icmp ne i32 {hits}, 0
vote.uni: p
    is_none = icmp eq i32 {hits}, 0
    is_all = icmp eq i32 {hits}, {group}
    result = or i1 {is_none}, {is_all}
; `shfl` for the lane {lane}: `shfl.last` is the last lane that this lane may read, or for `shfl.up` the first one;
; `shfl.idx` and so on are the lane that it reads. {distance} is the operand b. {bounds} is the operand c: its lowest 5
; bits are the clamp, which limits the position in a segment, and the bits 8 to 12 the mask of the bits of a lane's
; number that are equal in all lanes of a segment.
shfl.last:
    shifted = lshr i32 {bounds}, 8
    segment_mask = and i32 {shifted}, 31
    lane_mask = xor i32 {segment_mask}, 31
    begin = and i32 {lane}, {segment_mask}
    clamp = and i32 {bounds}, {lane_mask}
    end = and i32 {clamp}, 31
    last = or i32 {begin}, {end}
shfl.idx:
    shifted = lshr i32 {bounds}, 8
    segment_mask = and i32 {shifted}, 31
    lane_mask = xor i32 {segment_mask}, 31
    begin = and i32 {lane}, {segment_mask}
    position = and i32 {distance}, {lane_mask}
    source = or i32 {begin}, {position}
shfl.up:
    lane_distance = and i32 {distance}, 31
    source = sub i32 {lane}, {lane_distance}
shfl.down:
    lane_distance = and i32 {distance}, 31
    source = add i32 {lane}, {lane_distance}
shfl.bfly:
    lane_distance = and i32 {distance}, 31
    source = xor i32 {lane}, {lane_distance}
