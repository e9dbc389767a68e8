; The table of operations, which `arithmetic.operations` reads.
;
; A header lists instructions, without types or with the letter or the width of their last type; after the colon the
; types of the operands, of which the last repeats, and the type of the result: k is the last type of the instruction,
; w the same with twice the width, u is u32, l is u64, and p a predicate. The body computes the result from {a}, {b},
; {c} and {d}: each line gives a name to a value, and later lines refer to it in braces. `arithmetic.expand_operation`
; defines the other names: {raw} is the integer type with the width of k, {ir} the type that LLVM computes with (float
; for halves), {suffix} the ending of LLVM's float intrinsics, {most} the width less 1, {letter} s or u.
; Operations without types are used by other modules, which pass values by name. A name such as {ntid[0]} that is not
; passed is a field of BlockContext.
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
    one = {extend} {raw} {a} to {wide}
    two = {extend} {raw} {b} to {wide}
    result = mul {wide} {one}, {two}
mad.wide: kkw w
    one = {extend} {raw} {a} to {wide}
    two = {extend} {raw} {b} to {wide}
    product = mul {wide} {one}, {two}
    result = add {wide} {product}, {c}
mul.hi: k k
    one = {extend} {raw} {a} to {wide}
    two = {extend} {raw} {b} to {wide}
    product = mul {wide} {one}, {two}
    above = lshr {wide} {product}, {bits}
    result = trunc {wide} {above} to {raw}
mad.hi: k k
    one = {extend} {raw} {a} to {wide}
    two = {extend} {raw} {b} to {wide}
    product = mul {wide} {one}, {two}
    above = lshr {wide} {product}, {bits}
    upper = trunc {wide} {above} to {raw}
    result = add {raw} {upper}, {c}
mul24.lo: k k
    above1 = shl i32 {a}, 8
    above2 = shl i32 {b}, 8
    one = {shift} i32 {above1}, 8
    two = {shift} i32 {above2}, 8
    result = mul i32 {one}, {two}
mad24.lo: k k
    above1 = shl i32 {a}, 8
    above2 = shl i32 {b}, 8
    one = {shift} i32 {above1}, 8
    two = {shift} i32 {above2}, 8
    product = mul i32 {one}, {two}
    result = add i32 {product}, {c}
mul24.hi: k k
    above1 = shl i32 {a}, 8
    above2 = shl i32 {b}, 8
    narrow1 = {shift} i32 {above1}, 8
    narrow2 = {shift} i32 {above2}, 8
    one = {extend} i32 {narrow1} to i64
    two = {extend} i32 {narrow2} to i64
    product = mul i64 {one}, {two}
    above = lshr i64 {product}, 16
    result = trunc i64 {above} to i32
mad24.hi: k k
    above1 = shl i32 {a}, 8
    above2 = shl i32 {b}, 8
    narrow1 = {shift} i32 {above1}, 8
    narrow2 = {shift} i32 {above2}, 8
    one = {extend} i32 {narrow1} to i64
    two = {extend} i32 {narrow2} to i64
    product = mul i64 {one}, {two}
    above = lshr i64 {product}, 16
    upper = trunc i64 {above} to i32
    result = add i32 {upper}, {c}
mad24.hi.sat: k k
    above1 = shl i32 {a}, 8
    above2 = shl i32 {b}, 8
    narrow1 = {shift} i32 {above1}, 8
    narrow2 = {shift} i32 {above2}, 8
    one = {extend} i32 {narrow1} to i64
    two = {extend} i32 {narrow2} to i64
    product = mul i64 {one}, {two}
    above = lshr i64 {product}, 16
    upper = trunc i64 {above} to i32
    result = call i32 @llvm.sadd.sat.i32(i32 {upper}, i32 {c})
mad.hi.sat.s32: k k
    one = sext i32 {a} to i64
    two = sext i32 {b} to i64
    product = mul i64 {one}, {two}
    above = lshr i64 {product}, 32
    upper = trunc i64 {above} to i32
    result = call i32 @llvm.sadd.sat.i32(i32 {upper}, i32 {c})
; x86 traps on x / 0 and INT_MIN / -1. A GPU returns all ones for x / 0.
div.u rem.u: k k
    zero = icmp eq {raw} {b}, 0
    divisor = select i1 {zero}, {raw} 1, {raw} {b}
    plain = u{opcode} {raw} {a}, {divisor}
    result = select i1 {zero}, {raw} -1, {raw} {plain}
div.s: k k
    zero = icmp eq {raw} {b}, 0
    minus = icmp eq {raw} {b}, -1
    special = or i1 {zero}, {minus}
    divisor = select i1 {special}, {raw} 1, {raw} {b}
    plain = sdiv {raw} {a}, {divisor}
    negated = sub {raw} 0, {a}
    quotient = select i1 {minus}, {raw} {negated}, {raw} {plain}
    result = select i1 {zero}, {raw} -1, {raw} {quotient}
rem.s: k k
    zero = icmp eq {raw} {b}, 0
    minus = icmp eq {raw} {b}, -1
    special = or i1 {zero}, {minus}
    divisor = select i1 {special}, {raw} 1, {raw} {b}
    plain = srem {raw} {a}, {divisor}
    result = select i1 {zero}, {raw} -1, {raw} {plain}
neg: k k
    result = sub {raw} 0, {a}
not: k k
    result = xor {raw} {a}, -1
cnot: k k
    zero = icmp eq {raw} {a}, 0
    result = zext i1 {zero} to {raw}
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
; The position of the highest bit that differs from the sign, or the shift that moves it to the top.
bfind: k u
    none = icmp eq {raw} {a}, 0
    zeros = call {raw} @llvm.ctlz.{raw}({raw} {a}, i1 false)
    position = sub {raw} {most}, {zeros}
    chosen = select i1 {none}, {raw} -1, {raw} {position}
    wide = zext {raw} {chosen} to i128
    result = trunc i128 {wide} to i32
bfind.s: k u
    sign = ashr {raw} {a}, {most}
    value = xor {raw} {a}, {sign}
    none = icmp eq {raw} {value}, 0
    zeros = call {raw} @llvm.ctlz.{raw}({raw} {value}, i1 false)
    position = sub {raw} {most}, {zeros}
    chosen = select i1 {none}, {raw} -1, {raw} {position}
    wide = zext {raw} {chosen} to i128
    result = trunc i128 {wide} to i32
bfind.shiftamt: k u
    none = icmp eq {raw} {a}, 0
    zeros = call {raw} @llvm.ctlz.{raw}({raw} {a}, i1 false)
    chosen = select i1 {none}, {raw} -1, {raw} {zeros}
    wide = zext {raw} {chosen} to i128
    result = trunc i128 {wide} to i32
bfind.shiftamt.s: k u
    sign = ashr {raw} {a}, {most}
    value = xor {raw} {a}, {sign}
    none = icmp eq {raw} {value}, 0
    zeros = call {raw} @llvm.ctlz.{raw}({raw} {value}, i1 false)
    chosen = select i1 {none}, {raw} -1, {raw} {zeros}
    wide = zext {raw} {chosen} to i128
    result = trunc i128 {wide} to i32
min max: k k
    result = call {raw} @llvm.{letter}{opcode}.{raw}({raw} {a}, {raw} {b})
min.relu.s max.relu.s: k k
    most = call {raw} @llvm.s{opcode}.{raw}({raw} {a}, {raw} {b})
    result = call {raw} @llvm.smax.{raw}({raw} {most}, {raw} 0)
dp4a: u u
    left0 = call i32 @ptxlink.{extend0}.byte(i32 {a}, i32 0)
    right0 = call i32 @ptxlink.{extend}.byte(i32 {b}, i32 0)
    product0 = mul i32 {left0}, {right0}
    left1 = call i32 @ptxlink.{extend0}.byte(i32 {a}, i32 8)
    right1 = call i32 @ptxlink.{extend}.byte(i32 {b}, i32 8)
    product1 = mul i32 {left1}, {right1}
    left2 = call i32 @ptxlink.{extend0}.byte(i32 {a}, i32 16)
    right2 = call i32 @ptxlink.{extend}.byte(i32 {b}, i32 16)
    product2 = mul i32 {left2}, {right2}
    left3 = call i32 @ptxlink.{extend0}.byte(i32 {a}, i32 24)
    right3 = call i32 @ptxlink.{extend}.byte(i32 {b}, i32 24)
    product3 = mul i32 {left3}, {right3}
    sum0 = add i32 {c}, {product0}
    sum1 = add i32 {sum0}, {product1}
    sum2 = add i32 {sum1}, {product2}
    result = add i32 {sum2}, {product3}
; The lower or the upper two bytes of the second operand, times the halves of the first.
dp2a.lo: u u
    left0 = call i32 @ptxlink.{extend0}.half(i32 {a}, i32 0)
    right0 = call i32 @ptxlink.{extend}.byte(i32 {b}, i32 0)
    product0 = mul i32 {left0}, {right0}
    left1 = call i32 @ptxlink.{extend0}.half(i32 {a}, i32 16)
    right1 = call i32 @ptxlink.{extend}.byte(i32 {b}, i32 8)
    product1 = mul i32 {left1}, {right1}
    sum0 = add i32 {c}, {product0}
    result = add i32 {sum0}, {product1}
dp2a.hi: u u
    left0 = call i32 @ptxlink.{extend0}.half(i32 {a}, i32 0)
    right0 = call i32 @ptxlink.{extend}.byte(i32 {b}, i32 16)
    product0 = mul i32 {left0}, {right0}
    left1 = call i32 @ptxlink.{extend0}.half(i32 {a}, i32 16)
    right1 = call i32 @ptxlink.{extend}.byte(i32 {b}, i32 24)
    product1 = mul i32 {left1}, {right1}
    sum0 = add i32 {c}, {product0}
    result = add i32 {sum0}, {product1}
sad: k k
    greater = call {raw} @llvm.{letter}max.{raw}({raw} {a}, {raw} {b})
    smaller = call {raw} @llvm.{letter}min.{raw}({raw} {a}, {raw} {b})
    distance = sub {raw} {greater}, {smaller}
    result = add {raw} {c}, {distance}
; A shift by the width or more returns 0, or copies of the sign.
shl shr: ku k
    beyond = icmp uge i32 {b}, {bits}
    most = call i32 @llvm.umin.i32(i32 {b}, i32 {most})
    wide = zext i32 {most} to i128
    count = trunc i128 {wide} to {raw}
    moved = {shift} {raw} {a}, {count}
    result = select i1 {beyond}, {raw} 0, {raw} {moved}
shr.s: ku k
    most = call i32 @llvm.umin.i32(i32 {b}, i32 {most})
    wide = zext i32 {most} to i128
    count = trunc i128 {wide} to {raw}
    result = ashr {raw} {a}, {count}
shf.l.wrap: u u
    result = call i32 @llvm.fshl.i32(i32 {b}, i32 {a}, i32 {c})
shf.r.wrap: u u
    result = call i32 @llvm.fshr.i32(i32 {b}, i32 {a}, i32 {c})
shf.l.clamp: u u
    beyond = icmp uge i32 {c}, 32
    moved = call i32 @llvm.fshl.i32(i32 {b}, i32 {a}, i32 {c})
    result = select i1 {beyond}, i32 {a}, i32 {moved}
shf.r.clamp: u u
    beyond = icmp uge i32 {c}, 32
    moved = call i32 @llvm.fshr.i32(i32 {b}, i32 {a}, i32 {c})
    result = select i1 {beyond}, i32 {b}, i32 {moved}
bfe: kuu k
    position = and i32 {b}, 255
    length = and i32 {c}, 255
    by = call i128 @ptxlink.clamp(i32 {position}, i32 {bits})
    ones = call i128 @ptxlink.ones(i32 {length}, i32 {bits})
    wide = zext {raw} {a} to i128
    moved = lshr i128 {wide}, {by}
    field = and i128 {moved}, {ones}
    result = trunc i128 {field} to {raw}
; The sign is the highest bit of the field, or of the register if the field extends beyond it.
bfe.s: kuu k
    position = and i32 {b}, 255
    length = and i32 {c}, 255
    by = call i128 @ptxlink.clamp(i32 {position}, i32 {bits})
    ones = call i128 @ptxlink.ones(i32 {length}, i32 {bits})
    wide = sext {raw} {a} to i128
    moved = ashr i128 {wide}, {by}
    field = and i128 {moved}, {ones}
    half = lshr i128 {ones}, 1
    top = xor i128 {half}, {ones}
    sign = and i128 {moved}, {top}
    negative = icmp ne i128 {sign}, 0
    outside = xor i128 {ones}, -1
    filled = or i128 {field}, {outside}
    chosen = select i1 {negative}, i128 {filled}, i128 {field}
    result = trunc i128 {chosen} to {raw}
bfi: kku k
    position = and i32 {c}, 255
    length = and i32 {d}, 255
    by = call i128 @ptxlink.clamp(i32 {position}, i32 {bits})
    ones = call i128 @ptxlink.ones(i32 {length}, i32 {bits})
    mask = shl i128 {ones}, {by}
    wide = zext {raw} {a} to i128
    moved = shl i128 {wide}, {by}
    inside = and i128 {moved}, {mask}
    outside = xor i128 {mask}, -1
    around = zext {raw} {b} to i128
    kept = and i128 {around}, {outside}
    both = or i128 {inside}, {kept}
    result = trunc i128 {both} to {raw}
bmsk.clamp: u u
    by = call i128 @ptxlink.clamp(i32 {a}, i32 {bits})
    ones = call i128 @ptxlink.ones(i32 {b}, i32 {bits})
    moved = shl i128 {ones}, {by}
    result = trunc i128 {moved} to i32
bmsk.wrap: u u
    position = and i32 {a}, 31
    length = and i32 {b}, 31
    by = call i128 @ptxlink.clamp(i32 {position}, i32 {bits})
    ones = call i128 @ptxlink.ones(i32 {length}, i32 {bits})
    moved = shl i128 {ones}, {by}
    result = trunc i128 {moved} to i32
; Extend the lowest {b} bits. The top bit of that field is flipped and subtracted, which copies the sign upwards.
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
    half = lshr i32 {mask}, 1
    top = xor i32 {mask}, {half}
    flipped = xor i32 {field}, {top}
    result = sub i32 {flipped}, {top}
szext.wrap.s: ku k
    length = and i32 {b}, 31
    ones = call i128 @ptxlink.ones(i32 {length}, i32 32)
    mask = trunc i128 {ones} to i32
    field = and i32 {a}, {mask}
    half = lshr i32 {mask}, 1
    top = xor i32 {mask}, {half}
    flipped = xor i32 {field}, {top}
    result = sub i32 {flipped}, {top}
fns: u u
    result = call i32 @ptxlink.find_nth_set(i32 {a}, i32 {b}, i32 {c})
; The selector of a mode of `prmt`, one of the four in {modes}.
prmt.mode:
    number = and i32 {control}, 3
    position = shl i32 {number}, 4
    wide = zext i32 {position} to i64
    moved = lshr i64 {modes}, {wide}
    low = and i64 {moved}, 65535
    selector = trunc i64 {low} to i32
; Each nibble of the third operand selects one of eight bytes; its top bit replicates the sign of that byte.
prmt: u u
    upper = zext i32 {b} to i64
    lower = zext i32 {a} to i64
    top = shl i64 {upper}, 32
    bytes = or i64 {top}, {lower}
    byte0 = call i32 @ptxlink.permute(i64 {bytes}, i32 {c}, i32 0)
    byte1 = call i32 @ptxlink.permute(i64 {bytes}, i32 {c}, i32 8)
    byte2 = call i32 @ptxlink.permute(i64 {bytes}, i32 {c}, i32 16)
    byte3 = call i32 @ptxlink.permute(i64 {bytes}, i32 {c}, i32 24)
    half0 = or i32 {byte0}, {byte1}
    half1 = or i32 {byte2}, {byte3}
    result = or i32 {half0}, {half1}
; For each bit position, the bits of a, b and c form an index 0 to 7 into the look-up table d.
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
; A GPU multiplies by the reciprocal, and flushes a subnormal reciprocal to zero.
div.approx.f: k k
    reciprocal = fdiv float 1.0, {b}
    size = call float @llvm.fabs.f32(float {reciprocal})
    none = fcmp olt float {size}, 0x3810000000000000
    signed = call float @llvm.copysign.f32(float 0.0, float {reciprocal})
    zero = fmul float {a}, {signed}
    plain = fdiv float {a}, {b}
    result = select i1 {none}, float {zero}, float {plain}
fma.f mad.f: k k
    result = call {ir} @llvm.fma.{suffix}({ir} {a}, {ir} {b}, {ir} {c})
fma.f16: k k
    result = call float @ptxlink.fused(float {a}, float {b}, float {c})
min.f max.f: k k
    result = call {ir} @ptxlink.{opcode}.{suffix}({ir} {a}, {ir} {b})
min.NaN.f max.NaN.f: k k
    plain = call {ir} @ptxlink.{opcode}.{suffix}({ir} {a}, {ir} {b})
    unordered = fcmp uno {ir} {a}, {b}
    sum = fadd {ir} {a}, {b}
    result = select i1 {unordered}, {ir} {sum}, {ir} {plain}
neg.f: k k
    result = fneg {ir} {a}
; A double that is NaN keeps its sign, and becomes quiet.
neg.f64: k k
    negated = fneg double {a}
    none = fcmp uno double {a}, {a}
    quiet = fadd double {a}, {a}
    result = select i1 {none}, double {quiet}, double {negated}
abs.f: k k
    result = call {ir} @llvm.fabs.{suffix}({ir} {a})
copysign.f: k k
    result = call {ir} @llvm.copysign.{suffix}({ir} {b}, {ir} {a})
; Approximations are computed by LLVM and the C library: the last bits differ from a GPU's.
sqrt.f sqrt.approx.f tanh.approx.f: k k
    result = call {ir} @llvm.{opcode}.{suffix}({ir} {a})
; A GPU multiplies the angle by 1/(2 pi), rounds towards zero to a float, and takes the sine of that many turns. So a
; large angle has few or no bits left for the fraction of a turn, and its sine is inaccurate in the same way.
sin.approx.f cos.approx.f: k k
    wide = fpext float {a} to double
    turns = fmul double {wide}, 0x3FC45F3060000000
    all = bitcast double {turns} to i64
    upper = and i64 {all}, -536870912
    cut = bitcast i64 {upper} to double
    part = frem double {cut}, 1.0
    angle = fmul double {part}, 0x401921FB54442D18
    exact = call double @llvm.{opcode}.f64(double {angle})
    result = fptrunc double {exact} to float
ex2.approx.f: k k
    result = call {ir} @llvm.exp2.{suffix}({ir} {a})
lg2.approx.f: k k
    result = call {ir} @llvm.log2.{suffix}({ir} {a})
rcp.f rcp.approx.f: k k
    result = fdiv {ir} 1.0, {a}
rsqrt.approx.f: k k
    root = call {ir} @llvm.sqrt.{suffix}({ir} {a})
    result = fdiv {ir} 1.0, {root}
; The lower half of a GPU's result is zero.
rcp.approx.ftz.f64: k k
    whole = fdiv double 1.0, {a}
    bits = bitcast double {whole} to i64
    upper = and i64 {bits}, -4294967296
    result = bitcast i64 {upper} to double
rsqrt.approx.ftz.f64: k k
    root = call double @llvm.sqrt.f64(double {a})
    whole = fdiv double 1.0, {root}
    bits = bitcast double {whole} to i64
    upper = and i64 {bits}, -4294967296
    result = bitcast i64 {upper} to double
; Directed rounding: up, or toward zero if {up} is false.
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
testp.finite.f: k p
    result = call i1 @llvm.is.fpclass.{suffix}({ir} {a}, i32 504)
testp.infinite.f: k p
    result = call i1 @llvm.is.fpclass.{suffix}({ir} {a}, i32 516)
testp.number.f: k p
    result = call i1 @llvm.is.fpclass.{suffix}({ir} {a}, i32 1020)
testp.notanumber.f: k p
    result = call i1 @llvm.is.fpclass.{suffix}({ir} {a}, i32 3)
; PTX counts zeros among the normal numbers here.
testp.normal.f: k p
    result = call i1 @llvm.is.fpclass.{suffix}({ir} {a}, i32 360)
testp.subnormal.f: k p
    result = call i1 @llvm.is.fpclass.{suffix}({ir} {a}, i32 144)
; Comparisons. The unordered ones (equ, ltu, ...) are true if an operand is NaN.
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
    size = call {ir} @llvm.fabs.{suffix}({ir} {a})
    zero = call {ir} @llvm.copysign.{suffix}({ir} 0.0, {ir} {a})
    small = fcmp olt {ir} {size}, {smallest}
    result = select i1 {small}, {ir} {zero}, {ir} {a}
sat.f: k k
    above = fcmp ogt {ir} {a}, 0.0
    positive = select i1 {above}, {ir} {a}, {ir} 0.0
    below = fcmp olt {ir} {positive}, 1.0
    result = select i1 {below}, {ir} {positive}, {ir} 1.0
relu.f: k k
    above = fcmp ugt {ir} {a}, 0.0
    result = select i1 {above}, {ir} {a}, {ir} 0.0
; Floats to integers: NaN becomes 0, or the lowest integer if one of the types has 64 bits.
cvt.integer:
    whole = call {ir} @llvm.{rounded}.{suffix}({ir} {value})
    result = call {raw} @llvm.fpto{letter}i.sat.{raw}.{suffix}({ir} {whole})
    none = fcmp uno {ir} {value}, {value}
    chosen = select i1 {none}, {raw} {nan_result}, {raw} {result}
cvt.sat:
    above = call i128 @llvm.smax.i128(i128 {value}, i128 {low})
    result = call i128 @llvm.smin.i128(i128 {above}, i128 {high})
; Round a large integer to odd, so that the conversion to double is exact and a later rounding to a half is correct:
; the lowest bit that a double keeps is 1 if a lower bit is.
cvt.kept:
    moved = add i64 {value}, {least}
    small = icmp ult i64 {moved}, {count}
    dropped = and i64 {value}, 2047
    some = icmp ne i64 {dropped}, 0
    upper = and i64 {value}, -2048
    last = select i1 {some}, i64 2048, i64 0
    kept = or i64 {upper}, {last}
    result = select i1 {small}, i64 {value}, i64 {kept}
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
    above = add i32 {thread_count}, 31
    result = lshr i32 {above}, 5
%lanemask_eq: u
    position = and i32 {current_thread}, 31
    result = shl i32 1, {position}
%lanemask_lt: u
    position = and i32 {current_thread}, 31
    above = shl i32 -1, {position}
    result = xor i32 {above}, -1
%lanemask_le: u
    position = and i32 {current_thread}, 31
    above = shl i32 -2, {position}
    result = xor i32 {above}, -1
%lanemask_gt: u
    position = and i32 {current_thread}, 31
    result = shl i32 -2, {position}
%lanemask_ge: u
    position = and i32 {current_thread}, 31
    result = shl i32 -1, {position}
%dynamic_smem_size: u
    result = or i32 {dynamic_shared_size}, 0
%total_smem_size %aggr_smem_size: u
    result = trunc i64 {shared_size} to i32
; The address of the workspace of the grid barrier.
%envreg1: u
    high = lshr i64 {workspace}, 32
    result = trunc i64 {high} to i32
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
; Whether an access is aligned, and inside the region that the instruction used last or the block's shared memory.
; {mask} is its size less 1.
access.cached:
    distance = sub i64 {value}, {low}
    near = icmp ult i64 {distance}, {offset_limit}
    rest = and i64 {value}, {mask}
    aligned = icmp eq i64 {rest}, 0
    in_bounds = and i1 {near}, {aligned}
; The address of a local or constant variable. PTX with short pointers has only its lower 32 bits: find the nearest
; address to {base} with these bits.
address.restore:
    distance = sub i64 {value}, {base}
    low = trunc i64 {distance} to i32
    wide = sext i32 {low} to i64
    result = add i64 {base}, {wide}
access.shared:
    offset_limit = call i64 @llvm.usub.sat.i64(i64 {shared_size}, i64 {mask})
    in_bounds = icmp ult i64 {offset}, {offset_limit}
    rest = and i64 {offset}, {mask}
    aligned = icmp eq i64 {rest}, 0
    allowed = and i1 {in_bounds}, {aligned}
isspacep.shared: p
    start = add i64 {shared_base}, {first}
    position = sub i64 {value}, {start}
    result = icmp ult i64 {position}, {shared_size}
isspacep.local: p
    distance = sub i64 {value}, {local_base}
    result = icmp ult i64 {distance}, {local_total_size}
isspacep.global: p
    start = add i64 {shared_base}, {first}
    position = sub i64 {value}, {start}
    is_shared = icmp ult i64 {position}, {shared_size}
    distance = sub i64 {value}, {local_base}
    is_local = icmp ult i64 {distance}, {local_total_size}
    either = or i1 {is_shared}, {is_local}
    result = xor i1 {either}, true
; {group} is the mask of the lanes that take part, and {hits} of those whose predicate is true; for a barrier, {group}
; and {hits} are numbers of threads.
vote.ballot bar.popc: u
    result = or i32 {hits}, 0
vote.all bar.and: p
    result = icmp eq i32 {hits}, {group}
vote.any bar.or: p
    result = icmp ne i32 {hits}, 0
vote.uni: p
    none = icmp eq i32 {hits}, 0
    every = icmp eq i32 {hits}, {group}
    result = or i1 {none}, {every}
; The last lane that a lane may read by a shuffle, and the lane that it reads.
shfl.last:
    upper = lshr i32 {bounds}, 8
    segment = and i32 {upper}, 31
    within = xor i32 {segment}, 31
    begin = and i32 {lane}, {segment}
    clamp = and i32 {bounds}, {within}
    end = and i32 {clamp}, 31
    last = or i32 {begin}, {end}
shfl.idx:
    upper = lshr i32 {bounds}, 8
    segment = and i32 {upper}, 31
    within = xor i32 {segment}, 31
    begin = and i32 {lane}, {segment}
    position = and i32 {distance}, {within}
    source = or i32 {begin}, {position}
shfl.up:
    masked = and i32 {distance}, 31
    source = sub i32 {lane}, {masked}
shfl.down:
    masked = and i32 {distance}, 31
    source = add i32 {lane}, {masked}
shfl.bfly:
    masked = and i32 {distance}, 31
    source = xor i32 {lane}, {masked}
