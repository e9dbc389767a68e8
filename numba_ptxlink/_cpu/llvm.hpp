// Instructions and intrinsics of LLVM as C++ functions: `%c = add i32 %a, %b` is `c = op_add(a, b)`, and
// `call float @llvm.fabs.f32(float %a)` is `llvm_fabs(a)`. Integers are unsigned; an instruction that takes them as
// signed has an s in its name, such as sdiv. Each function computes what "LLVM Language Reference Manual" says: where
// an instruction is defined, C++ must not leave its function undefined, as it does for an overflow of signed integers.
// The parameter i1 of llvm_abs and others, which lets LLVM leave a case undefined, has no effect here.

#define PTXLINK_INLINE inline __attribute__((always_inline))

typedef bool i1;
typedef uint8_t i8;
typedef uint16_t i16;
typedef uint32_t i32;
typedef uint64_t i64;
__extension__ typedef unsigned __int128 i128;
__extension__ typedef __int128 s128;
typedef char* ptr;

static_assert(sizeof(ptr) == 8, "the host version of exported functions needs a 64-bit processor");
static_assert(FLT_EVAL_METHOD == 0 || FLT_EVAL_METHOD == 16, "floats are computed with more digits; use -mfpmath=sse");
#if defined(__FAST_MATH__)
#error "-ffast-math changes the results of exported functions; compile this file without it"
#endif

// For an integer type: the signed type of the same width, and the type for its arithmetic. C++ would promote i8 and i16
// to int, in which a product of two i16 may overflow.
template<class T> struct type_of;
template<> struct type_of<i8> { typedef int8_t signed_type; typedef i32 wide; };
template<> struct type_of<i16> { typedef int16_t signed_type; typedef i32 wide; };
template<> struct type_of<i32> { typedef int32_t signed_type; typedef i32 wide; };
template<> struct type_of<i64> { typedef int64_t signed_type; typedef i64 wide; };
template<> struct type_of<i128> { typedef s128 signed_type; typedef i128 wide; };
template<class T> PTXLINK_INLINE typename type_of<T>::signed_type as_signed(T a)
{
  return (typename type_of<T>::signed_type)a;
}
template<class T> PTXLINK_INLINE typename type_of<T>::wide as_wide(T a) { return a; }
template<class T> PTXLINK_INLINE unsigned width() { return 8 * sizeof(T); }

// Values with the same bits. The functions f32 and f64 are for constants, which are written as bits.

template<class T, class F> PTXLINK_INLINE T op_bitcast(F a)
{
  static_assert(sizeof(T) == sizeof(F), "size");
  T result;
  memcpy(&result, &a, sizeof result);
  return result;
}
PTXLINK_INLINE float f32(i32 bits) { return op_bitcast<float>(bits); }
PTXLINK_INLINE double f64(i64 bits) { return op_bitcast<double>(bits); }

// Integers

#define PTXLINK_BINARY(name, type, expression) \
  template<class T> PTXLINK_INLINE type name(T a, T b) { return (type)(expression); }
PTXLINK_BINARY(op_add, T, as_wide(a) + as_wide(b))
PTXLINK_BINARY(op_sub, T, as_wide(a) - as_wide(b))
PTXLINK_BINARY(op_mul, T, as_wide(a) * as_wide(b))
PTXLINK_BINARY(op_udiv, T, a / b)
PTXLINK_BINARY(op_urem, T, a % b)
PTXLINK_BINARY(op_sdiv, T, as_signed(a) / as_signed(b))
PTXLINK_BINARY(op_srem, T, as_signed(a) % as_signed(b))
PTXLINK_BINARY(op_and, T, a & b)
PTXLINK_BINARY(op_or, T, a | b)
PTXLINK_BINARY(op_xor, T, a ^ b)
PTXLINK_BINARY(op_shl, T, as_wide(a) << b)
PTXLINK_BINARY(op_lshr, T, a >> b)
PTXLINK_BINARY(op_ashr, T, as_signed(a) >> b)
PTXLINK_BINARY(op_icmp_eq, i1, a == b)
PTXLINK_BINARY(op_icmp_ne, i1, a != b)
PTXLINK_BINARY(op_icmp_ult, i1, a < b)
PTXLINK_BINARY(op_icmp_ule, i1, a <= b)
PTXLINK_BINARY(op_icmp_ugt, i1, a > b)
PTXLINK_BINARY(op_icmp_uge, i1, a >= b)
PTXLINK_BINARY(op_icmp_slt, i1, as_signed(a) < as_signed(b))
PTXLINK_BINARY(op_icmp_sle, i1, as_signed(a) <= as_signed(b))
PTXLINK_BINARY(op_icmp_sgt, i1, as_signed(a) > as_signed(b))
PTXLINK_BINARY(op_icmp_sge, i1, as_signed(a) >= as_signed(b))
PTXLINK_BINARY(llvm_umin, T, a < b ? a : b)
PTXLINK_BINARY(llvm_umax, T, a > b ? a : b)
PTXLINK_BINARY(llvm_smin, T, as_signed(a) < as_signed(b) ? a : b)
PTXLINK_BINARY(llvm_smax, T, as_signed(a) > as_signed(b) ? a : b)
PTXLINK_BINARY(llvm_usub_sat, T, a > b ? a - b : 0)
// At an overflow, a saturated sum or difference is the largest number, or for a negative a the smallest one, whose bits
// are the next integer.
template<class T> PTXLINK_INLINE T llvm_sadd_sat(T a, T b)
{
  typename type_of<T>::signed_type sum;
  const T end = (T)((T)~(T)0 >> 1) + (a >> (width<T>() - 1));
  return __builtin_add_overflow(as_signed(a), as_signed(b), &sum) ? end : (T)sum;
}
template<class T> PTXLINK_INLINE T llvm_ssub_sat(T a, T b)
{
  typename type_of<T>::signed_type difference;
  const T end = (T)((T)~(T)0 >> 1) + (a >> (width<T>() - 1));
  return __builtin_sub_overflow(as_signed(a), as_signed(b), &difference) ? end : (T)difference;
}
template<class T> PTXLINK_INLINE T llvm_abs(T a, i1) { return as_signed(a) < 0 ? op_sub((T)0, a) : a; }
template<class T> PTXLINK_INLINE T llvm_ctpop(T a)
{
  static_assert(sizeof(T) <= 8, "width");
  return (T)__builtin_popcountll(a);
}
template<class T> PTXLINK_INLINE T llvm_ctlz(T a, i1)
{
  // The built-in function counts the zeros in 64 bits, and is undefined for 0.
  return (T)(a ? (unsigned)__builtin_clzll(a) + width<T>() - 64 : width<T>());
}
PTXLINK_INLINE i128 llvm_ctlz(i128 a, i1)
{
  return a >> 64 ? llvm_ctlz((i64)(a >> 64), false) : 64 + llvm_ctlz((i64)a, false);
}
template<class T> PTXLINK_INLINE T llvm_cttz(T a, i1)
{
  static_assert(sizeof(T) <= 8, "width");
  return (T)(a ? (unsigned)__builtin_ctzll(a) : width<T>());
}
template<class T> PTXLINK_INLINE T llvm_bitreverse(T a)
{
  static_assert(sizeof(T) <= 8, "width");
  // Reverse the bytes, and then the halves, pairs and bits in each byte.
  i64 r = __builtin_bswap64(a);
  r = (r >> 4 & 0x0f0f0f0f0f0f0f0full) | (r & 0x0f0f0f0f0f0f0f0full) << 4;
  r = (r >> 2 & 0x3333333333333333ull) | (r & 0x3333333333333333ull) << 2;
  r = (r >> 1 & 0x5555555555555555ull) | (r & 0x5555555555555555ull) << 1;
  return (T)(r >> (64 - width<T>()));
}
PTXLINK_INLINE i32 llvm_fshl(i32 a, i32 b, i32 count) { return (i32)(((i64)a << 32 | b) << (count & 31) >> 32); }
PTXLINK_INLINE i32 llvm_fshr(i32 a, i32 b, i32 count) { return (i32)(((i64)a << 32 | b) >> (count & 31)); }

// Conversions

template<class T> PTXLINK_INLINE T op_select(i1 condition, T a, T b) { return condition ? a : b; }
template<class T, class F> PTXLINK_INLINE T op_zext(F a) { return a; }
template<class T, class F> PTXLINK_INLINE T op_sext(F a) { return (T)as_signed(a); }
template<class T, class F> PTXLINK_INLINE T truncated(F a, T) { return (T)a; }
template<class F> PTXLINK_INLINE i1 truncated(F a, i1) { return a & 1; }
template<class T, class F> PTXLINK_INLINE T op_trunc(F a) { return truncated(a, T()); }
template<class T, class F> PTXLINK_INLINE T op_uitofp(F a) { return (T)a; }
template<class T, class F> PTXLINK_INLINE T op_sitofp(F a) { return (T)as_signed(a); }
template<class T, class F> PTXLINK_INLINE T op_fpext(F a) { return a; }
template<class T, class F> PTXLINK_INLINE T op_fptrunc(F a) { return (T)a; }
// The float a as an integer I from low to high, clamped to this range, and 0 for NaN; returned as the unsigned type T.
template<class T, class I, class F> PTXLINK_INLINE T fit(F a, I low, I high)
{
  // Compare with high + 1, a power of two, since a float may be unable to represent high. Half of it does not overflow.
  return a != a ? 0 : a < (F)low ? (T)low : a >= (F)(high / 2 + 1) * 2 ? (T)high : (T)(I)a;
}
template<class T, class F> PTXLINK_INLINE T llvm_fptoui_sat(F a) { return fit<T, T>(a, 0, (T)~(T)0); }
template<class T, class F> PTXLINK_INLINE T llvm_fptosi_sat(F a)
{
  const typename type_of<T>::signed_type high = (T)((T)~(T)0 >> 1);
  return fit<T>(a, (typename type_of<T>::signed_type)(-high - 1), high);
}

// Floats. On a processor with fused multiply-add, GCC fuses a product and a sum to one instruction, which rounds once,
// even if -ffp-contract=off was passed for an inlined function. From GCC 12 on, the barrier keeps a product apart from
// the operations that use it; nvcc does not know it. Other compilers compute fma(a, b, -0), which is not fused again;
// adding -0 changes no number.

PTXLINK_INLINE float llvm_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
PTXLINK_INLINE double llvm_fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
#if defined(__clang__) || !defined(__FP_FAST_FMA)
template<class F> PTXLINK_INLINE F op_fmul(F a, F b) { return a * b; }
#elif __GNUC__ >= 12 && !defined(__CUDACC__)
template<class F> PTXLINK_INLINE F op_fmul(F a, F b) { return __builtin_assoc_barrier(a * b); }
#else
template<class F> PTXLINK_INLINE F op_fmul(F a, F b) { return llvm_fma(a, b, (F)-0.0); }
#endif
template<class F> PTXLINK_INLINE F op_fadd(F a, F b) { return a + b; }
template<class F> PTXLINK_INLINE F op_fsub(F a, F b) { return a - b; }
template<class F> PTXLINK_INLINE F op_fdiv(F a, F b) { return a / b; }
template<class F> PTXLINK_INLINE F op_fneg(F a) { return -a; }
PTXLINK_BINARY(op_fcmp_oeq, i1, a == b)
PTXLINK_BINARY(op_fcmp_olt, i1, a < b)
PTXLINK_BINARY(op_fcmp_ole, i1, a <= b)
PTXLINK_BINARY(op_fcmp_ogt, i1, a > b)
PTXLINK_BINARY(op_fcmp_oge, i1, a >= b)
PTXLINK_BINARY(op_fcmp_une, i1, a != b)
PTXLINK_BINARY(op_fcmp_ult, i1, !(a >= b))
PTXLINK_BINARY(op_fcmp_ule, i1, !(a > b))
PTXLINK_BINARY(op_fcmp_ugt, i1, !(a <= b))
PTXLINK_BINARY(op_fcmp_uge, i1, !(a < b))
PTXLINK_BINARY(op_fcmp_uno, i1, a != a || b != b)
PTXLINK_BINARY(op_fcmp_ord, i1, a == a && b == b)
PTXLINK_BINARY(op_fcmp_one, i1, a < b || a > b)
PTXLINK_BINARY(op_fcmp_ueq, i1, !(a < b || a > b))
#define PTXLINK_MATH(name, function) \
  PTXLINK_INLINE float name(float a) { return __builtin_##function##f(a); } \
  PTXLINK_INLINE double name(double a) { return __builtin_##function(a); }
PTXLINK_MATH(llvm_fabs, fabs)
PTXLINK_MATH(llvm_sqrt, sqrt)
PTXLINK_MATH(llvm_floor, floor)
PTXLINK_MATH(llvm_ceil, ceil)
PTXLINK_MATH(llvm_trunc, trunc)
PTXLINK_MATH(llvm_roundeven, rint)  // Processors round to nearest even, unless a program changes that.
PTXLINK_MATH(llvm_exp2, exp2)
PTXLINK_MATH(llvm_log2, log2)
PTXLINK_MATH(llvm_sin, sin)
PTXLINK_MATH(llvm_cos, cos)
PTXLINK_MATH(llvm_tanh, tanh)
PTXLINK_INLINE float llvm_copysign(float a, float b) { return __builtin_copysignf(a, b); }
PTXLINK_INLINE double llvm_copysign(double a, double b) { return __builtin_copysign(a, b); }
PTXLINK_INLINE double op_frem(double a, double b) { return __builtin_fmod(a, b); }
template<class F> PTXLINK_INLINE i1 llvm_is_fpclass(F a, i32 mask)
{
  // The bits of the mask: 1 and 2 for NaN, 4 and 512 for infinite, 8 and 256 for normal, 16 and 128 for subnormal, 32
  // and 64 for zero; each first for negative and then for positive numbers.
  const bool negative = __builtin_signbit(a);
  const i32 is_class = a != a ? 3 : a == 0 ? (negative ? 32 : 64) : __builtin_isinf(a) ? (negative ? 4 : 512)
    : __builtin_isnormal(a) ? (negative ? 8 : 256) : (negative ? 16 : 128);
  return (mask & is_class) != 0;
}

// Memory

template<class T> PTXLINK_INLINE T op_ptrtoint(const void* a) { return (T)a; }
template<class T> PTXLINK_INLINE T op_inttoptr(i64 a) { return (T)a; }
PTXLINK_INLINE ptr op_getelementptr(ptr a, i64 offset) { return a + (int64_t)offset; }
template<class T> PTXLINK_INLINE T op_load(const char* a)
{
  T result;
  memcpy(&result, a, sizeof result);
  return result;
}
template<class T> PTXLINK_INLINE void op_store(T value, char* a) { memcpy(a, &value, sizeof value); }
PTXLINK_INLINE void llvm_memcpy(char* to, const char* from, i64 size, i1) { memcpy(to, from, size); }
// The type of a value that the program may also access by other types.
template<class T> struct atomic { typedef T __attribute__((may_alias)) type; };
template<class T> PTXLINK_INLINE T op_load_atomic(ptr a)
{
  return __atomic_load_n((typename atomic<T>::type*)a, __ATOMIC_SEQ_CST);
}
template<class T> PTXLINK_INLINE void op_store_atomic(T value, ptr a)
{
  __atomic_store_n((typename atomic<T>::type*)a, value, __ATOMIC_SEQ_CST);
}
// The result of cmpxchg: the old value, and whether it was replaced.
template<class T> struct exchanged { T part_0; i1 part_1; };
template<class T> PTXLINK_INLINE exchanged<T> op_cmpxchg(ptr a, T expected, T value)
{
  exchanged<T> result = {expected, false};
  result.part_1 = __atomic_compare_exchange_n((typename atomic<T>::type*)a, &result.part_0, value, false,
    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return result;
}
#define PTXLINK_ATOMIC(name, function) \
  template<class T> PTXLINK_INLINE T name(ptr a, T value) \
  { return __atomic_##function((typename atomic<T>::type*)a, value, __ATOMIC_SEQ_CST); }
PTXLINK_ATOMIC(op_atomicrmw_xchg, exchange_n)
PTXLINK_ATOMIC(op_atomicrmw_add, fetch_add)
PTXLINK_ATOMIC(op_atomicrmw_and, fetch_and)
PTXLINK_ATOMIC(op_atomicrmw_or, fetch_or)
PTXLINK_ATOMIC(op_atomicrmw_xor, fetch_xor)
#define PTXLINK_ATOMIC_LOOP(name, expression) \
  template<class T> PTXLINK_INLINE T name(ptr a, T b) \
  { \
    exchanged<T> last = {op_load_atomic<T>(a), false}; \
    do { \
      const T old = last.part_0; \
      last = op_cmpxchg(a, old, (T)(expression)); \
    } while (!last.part_1); \
    return last.part_0; \
  }
PTXLINK_ATOMIC_LOOP(op_atomicrmw_umin, llvm_umin(old, b))
PTXLINK_ATOMIC_LOOP(op_atomicrmw_umax, llvm_umax(old, b))
PTXLINK_ATOMIC_LOOP(op_atomicrmw_min, llvm_smin(old, b))
PTXLINK_ATOMIC_LOOP(op_atomicrmw_max, llvm_smax(old, b))
PTXLINK_ATOMIC_LOOP(op_atomicrmw_uinc_wrap, old >= b ? 0 : old + 1)
PTXLINK_ATOMIC_LOOP(op_atomicrmw_udec_wrap, old == 0 || old > b ? b : old - 1)
PTXLINK_INLINE void op_fence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

#undef PTXLINK_INLINE
#undef PTXLINK_BINARY
#undef PTXLINK_MATH
#undef PTXLINK_ATOMIC
#undef PTXLINK_ATOMIC_LOOP
