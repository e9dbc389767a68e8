// What converts to an array_view and what does not; it compiles where all of it holds.
#include <cuda/std/array>
#include <cuda/std/mdspan>
#include <cuda/std/span>
#include <cuda/std/type_traits>
#include <numba_ptxlink/array_view.h>

namespace std_ = cuda::std;
using numba_ptxlink::array_view;
using numba_ptxlink::layout_any;
using numba_ptxlink::layout_c;
using numba_ptxlink::layout_f;

template <class T, int ndim> using C = array_view<T, ndim, layout_c>;
template <class T, int ndim> using F = array_view<T, ndim, layout_f>;
template <class T, int ndim> using A = array_view<T, ndim, layout_any>;
template <class From, class To> constexpr bool converts = std_::is_convertible_v<From, To>;
template <class View, class... Args> constexpr bool makes = std_::is_constructible_v<View, Args...>;
template <class T, class Layout, class Extents = std_::dextents<int, 2>>
using md = std_::mdspan<T, Extents, Layout>;
using right = std_::layout_right;
using left = std_::layout_left;
using stride = std_::layout_stride;

// Layouts.
static_assert(converts<C<float, 2>, A<float, 2>> && converts<F<float, 2>, A<float, 2>>);
static_assert(!converts<A<float, 2>, C<float, 2>> && !converts<A<float, 2>, F<float, 2>>);
static_assert(!converts<C<float, 2>, F<float, 2>> && !converts<F<float, 2>, C<float, 2>>);
static_assert(!makes<C<float, 2>, A<float, 2>> && !makes<F<float, 2>, C<float, 2>>);
static_assert(converts<C<float, 1>, F<float, 1>> && converts<F<float, 1>, C<float, 1>>);
static_assert(!converts<A<float, 1>, C<float, 1>> && !converts<A<float, 1>, F<float, 1>>);
static_assert(converts<A<float, 0>, C<float, 0>> && converts<C<float, 0>, F<const float, 0>>);
static_assert(std_::is_same_v<array_view<float, 3>, A<float, 3>>);
// Constness and element types.
static_assert(converts<C<float, 2>, C<const float, 2>> && converts<F<float, 2>, A<const float, 2>>);
static_assert(!converts<C<const float, 2>, C<float, 2>> && !converts<A<const float, 0>, A<float, 0>>);
static_assert(!converts<C<float, 1>, C<double, 1>> && !converts<C<int, 1>, C<unsigned, 1>>);
static_assert(!converts<C<float, 2>, C<float, 1>>);
// Spans.
static_assert(converts<std_::span<float>, C<float, 1>> && converts<std_::span<float>, F<float, 1>>);
static_assert(converts<std_::span<float>, A<float, 1>> && converts<std_::span<float>, A<const float, 1>>);
static_assert(converts<std_::span<float, 4>, C<float, 1>> && converts<const std_::span<float>, C<float, 1>>);
static_assert(converts<const std_::span<float>&, C<const float, 1>>);
static_assert(converts<std_::span<const float>, C<const float, 1>>);
static_assert(!converts<std_::span<const float>, C<float, 1>> && !converts<std_::span<double>, C<float, 1>>);
static_assert(!converts<std_::span<float>, C<float, 2>> && !converts<std_::span<float>, C<float, 0>>);
static_assert(converts<std_::array<float, 3>&, C<float, 1>>);
static_assert(converts<const std_::array<float, 3>&, C<const float, 1>>);
static_assert(!converts<const std_::array<float, 3>&, C<float, 1>>);
// Mdspans.
static_assert(converts<md<float, right>, C<float, 2>> && converts<md<float, right>, A<float, 2>>);
static_assert(!converts<md<float, right>, F<float, 2>>);
static_assert(converts<md<float, left>, F<float, 2>> && converts<md<float, left>, A<float, 2>>);
static_assert(!converts<md<float, left>, C<float, 2>>);
static_assert(converts<md<float, stride>, A<float, 2>>);
static_assert(!converts<md<float, stride>, C<float, 2>> && !converts<md<float, stride>, F<float, 2>>);
static_assert(converts<md<float, right>, C<const float, 2>> && converts<md<const float, right>, C<const float, 2>>);
static_assert(!converts<md<const float, right>, C<float, 2>> && !converts<md<double, right>, C<float, 2>>);
static_assert(!converts<md<float, right>, C<float, 3>> && !converts<md<float, right>, C<float, 1>>);
using fixed = std_::extents<int, 3, 4>;
static_assert(converts<md<float, right, fixed>, C<float, 2>> && converts<md<float, left, fixed>, F<float, 2>>);
static_assert(!converts<md<float, right, fixed>, F<float, 2>>);
using mixed = std_::extents<unsigned long long, 3, std_::dynamic_extent>;
static_assert(converts<md<float, right, mixed>, C<float, 2>> && !converts<md<float, left, mixed>, C<float, 2>>);
using line = std_::dextents<signed char, 1>;
static_assert(converts<md<float, right, line>, F<float, 1>> && converts<md<float, left, line>, C<float, 1>>);
static_assert(!converts<md<float, stride, line>, C<float, 1>> && converts<md<float, stride, line>, A<float, 1>>);
using point = std_::extents<int>;
static_assert(converts<md<float, right, point>, C<float, 0>> && converts<md<float, stride, point>, A<float, 0>>);
static_assert(!converts<md<const float, right, point>, C<float, 0>>);
// The product of seven extents of 2 is no signed char.
using tiny = std_::extents<signed char, 3, 1, 1, 1, 1, 1, 2>;
static_assert(converts<md<float, right, tiny>, C<float, 7>> && converts<md<float, left, tiny>, F<float, 7>>);
static_assert(!converts<md<float, left, tiny>, C<float, 7>> && !converts<md<float, right, tiny>, F<float, 7>>);
static_assert(converts<md<float, right, std_::dextents<signed char, 8>>, C<float, 8>>);
// The order of the first two of three dimensions, and of the last two, is looked at too.
struct swapped {
  template <class Extents> struct mapping : right::mapping<Extents> {
    using layout_type = swapped;
    NUMBA_PTXLINK_HOST_DEVICE constexpr typename Extents::index_type stride(typename Extents::rank_type axis) const {
      return right::mapping<Extents>::stride(axis == 0 ? 0 : 3 - axis);
    }
  };
};
using three_d = std_::dextents<int, 3>;
static_assert(!converts<md<float, swapped, three_d>, C<float, 3>>);
static_assert(!converts<md<float, swapped, three_d>, F<float, 3>>);
static_assert(converts<md<float, swapped, three_d>, A<float, 3>>);
// Extents.
enum Count : int { three = 3 };
enum class Scoped { three = 3 };
static_assert(makes<C<float, 2>, float*, int, long long> && makes<C<float, 2>, float*, unsigned, unsigned char>);
static_assert(makes<C<float, 1>, float*, unsigned long> && makes<C<float, 1>, float*, unsigned long long>);
static_assert(makes<C<float, 1>, float*, Count> && makes<C<float, 1>, float*, std_::integral_constant<int, 3>>);
static_assert(!makes<C<float, 1>, float*, float> && !makes<C<float, 2>, float*, int, double>);
static_assert(!makes<C<float, 1>, float*, Scoped> && !makes<C<float, 1>, float*, float*>);
static_assert(!makes<C<float, 1>, float*> && !makes<C<float, 1>, float*, int, int>);
static_assert(!makes<C<float, 1>, const float*, int> && makes<C<const float, 1>, float*, int>);
static_assert(!makes<C<float, 1>, double*, int> && !makes<C<float, 1>, void*, int>);
using two = const long long (&)[2];
static_assert(makes<A<float, 2>, float*, two, two>);
static_assert(!makes<C<float, 2>, float*, two, two> && !makes<F<float, 2>, float*, two, two>);
using large = const unsigned long (&)[2];
using floats = const float (&)[2];
static_assert(makes<A<float, 2>, float*, large, two> && makes<A<float, 1>, float*, const int (&)[1], const int (&)[1]>);
static_assert(!makes<A<float, 2>, float*, floats, two> && !makes<A<float, 1>, float*, int, int>);
// In braces: integers of any types, one for each dimension.
template <class Extent, class Stride, class = void> constexpr bool strided = false;
template <class Extent, class Stride>
constexpr bool strided<Extent, Stride,
                       decltype(void(A<float, 2>{nullptr, {3, std_::declval<Extent>()}, {std_::declval<Stride>(), 4}}))> = true;
static_assert(strided<int, int> && strided<unsigned long, unsigned long long> && strided<Count, signed char>);
static_assert(!strided<float, int> && !strided<int, double> && !strided<Scoped, int> && !strided<int, Scoped>);
NUMBA_PTXLINK_HOST_DEVICE inline A<float, 2> pitched(float* p, decltype(sizeof(0)) height, decltype(sizeof(0)) pitch) {
  return {p, {height, 3u}, {pitch, sizeof(float)}};
}
NUMBA_PTXLINK_HOST_DEVICE inline A<float, 1> column(float* p, decltype(sizeof(0)) height, decltype(sizeof(0)) pitch) {
  return {p, {height}, {pitch}};
}
static_assert(A<float, 2>(nullptr, {3, 4ul}, {-16, sizeof(float)}).strides[0] == -16);
static_assert(A<float, 1>(nullptr, {3ul}, {-4}).strides[0] == -4);
template <class View, class Index, class = void> constexpr bool indexes = false;
template <class View, class Index>
constexpr bool indexes<View, Index, decltype(void(std_::declval<View>()[std_::declval<Index>()]))> = true;
static_assert(indexes<C<float, 1>, int> && indexes<C<float, 1>, unsigned long>);
static_assert(!indexes<C<float, 1>, float> && !indexes<C<float, 2>, int>);
// Values, at compile time.
static_assert(F<float, 3>(nullptr, 2, 3, 4).strides[0] == 4 && F<float, 3>(nullptr, 2, 3, 4).strides[2] == 24);
static_assert(C<float, 3>(nullptr, 2, 3, 4).strides[0] == 48 && A<float, 3>(nullptr, 2, 3, 4).strides[0] == 48);
static_assert(C<float, 2>(nullptr, 0, 4).size() == 0 && C<float, 2>(nullptr, 3, 0).strides[0] == 0);
static_assert(numba_ptxlink::is_contiguous<layout_f>(F<float, 2>(nullptr, 2, 3)));
static_assert(!numba_ptxlink::is_contiguous<layout_c>(F<float, 2>(nullptr, 2, 3)));
static_assert(numba_ptxlink::is_contiguous<layout_c>(F<float, 2>(nullptr, 1, 3)));
static_assert(numba_ptxlink::is_contiguous<layout_c>(F<float, 3>(nullptr, 2, 3, 0)));
static_assert(numba_ptxlink::to_contiguous<layout_c>(A<float, 2>(nullptr, 2, 3)).strides[0] == 12);
static_assert(numba_ptxlink::assume_contiguous<layout_f>(A<float, 2>(nullptr, 2, 3)).strides[0] == 4);
static_assert(std_::is_trivially_copyable_v<C<float, 2>> && std_::is_trivial_v<A<float, 1>> && std_::is_trivial_v<F<float, 0>>);
