/*
 * numba_ptxlink/array_view.h: how exported functions take and return arrays.
 *
 * C++17, no includes: spans and mdspans of any library are recognised by what they offer.
 */
#ifndef NUMBA_PTXLINK_ARRAY_VIEW_H
#define NUMBA_PTXLINK_ARRAY_VIEW_H

#if !defined(__cplusplus)
#error "numba_ptxlink/array_view.h needs C++; functions that take arrays cannot be declared in C"
#endif

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define NUMBA_PTXLINK_HOST_DEVICE __host__ __device__
#else
#define NUMBA_PTXLINK_HOST_DEVICE
#endif

namespace numba_ptxlink {

namespace detail {

template <class T>
struct value_of {
  using type = T;
};
template <class T>
struct value_of<const T> {
  using type = T;
};
template <class T>
struct value_of<T&> : value_of<T> {};

template <class A, class B>
inline constexpr bool same = false;
template <class A>
inline constexpr bool same<A, A> = true;

template <bool>
struct enable {};
template <>
struct enable<true> {
  using type = int;
};
template <bool Condition>
using enable_if = typename enable<Condition>::type;

/* An address of From may stand for one of To: the same type, at most made const. */
template <class From, class To>
inline constexpr bool addresses =
    same<typename value_of<From>::type, typename value_of<To>::type> &&
    (same<To, const To> || !same<From, const From>);

template <class T>
struct without_reference {
  using type = T;
};
template <class T>
struct without_reference<T&> {
  using type = T;
};
template <class Pointer>
using pointee = typename without_reference<
    decltype(**static_cast<typename without_reference<Pointer>::type*>(nullptr))>::type;

}  // namespace detail

/*
 * An array of `ndim` dimensions that somebody else owns. `shape` counts elements, `strides` counts bytes.
 * A function whose Python parameter is C- or Fortran-contiguous ignores the strides.
 */
template <class T, int ndim>
struct array_view {
  static_assert(ndim > 0, "an array has no negative number of dimensions");

  T* data;
  long long shape[ndim];
  long long strides[ndim];

  array_view() = default;

  /* A C-contiguous array: an address and one extent for each dimension. */
  template <class... Extents, detail::enable_if<sizeof...(Extents) == ndim> = 0>
  NUMBA_PTXLINK_HOST_DEVICE constexpr array_view(T* address, Extents... extents)
      : data(address), shape{static_cast<long long>(extents)...}, strides{} {
    long long stride = sizeof(T);
    for (int axis = ndim - 1; axis >= 0; --axis) {
      strides[axis] = stride;
      stride *= shape[axis];
    }
  }

  /* Any layout: an address, extents, and strides in bytes. */
  NUMBA_PTXLINK_HOST_DEVICE constexpr array_view(T* address, const long long (&extents)[ndim],
                                                 const long long (&byte_strides)[ndim])
      : data(address), shape{}, strides{} {
    for (int axis = 0; axis < ndim; ++axis) {
      shape[axis] = extents[axis];
      strides[axis] = byte_strides[axis];
    }
  }

  /* cuda::std::span, std::span, and whatever else has data() and size(). */
  template <class Span,
            detail::enable_if<ndim == 1 && sizeof(static_cast<const Span*>(nullptr)->size()) != 0> = 0,
            detail::enable_if<detail::addresses<
                detail::pointee<decltype(static_cast<const Span*>(nullptr)->data())>, T>> = 0>
  NUMBA_PTXLINK_HOST_DEVICE constexpr array_view(const Span& span)
      : array_view(span.data(), static_cast<long long>(span.size())) {}

  /* cuda::std::mdspan, std::mdspan: any layout that has strides. */
  template <class Mdspan, detail::enable_if<Mdspan::rank() == ndim> = 0,
            detail::enable_if<detail::addresses<
                detail::pointee<decltype(static_cast<const Mdspan*>(nullptr)->data_handle())>, T>> = 0,
            class = void>
  NUMBA_PTXLINK_HOST_DEVICE constexpr array_view(const Mdspan& mdspan)
      : data(mdspan.data_handle()), shape{}, strides{} {
    for (int axis = 0; axis < ndim; ++axis) {
      shape[axis] = static_cast<long long>(mdspan.extent(axis));
      strides[axis] = static_cast<long long>(mdspan.stride(axis)) * static_cast<long long>(sizeof(T));
    }
  }

  /* The element at one index for each dimension; unlike Python's, indices are not wrapped. */
  template <class... Indices, detail::enable_if<sizeof...(Indices) == ndim> = 0>
  NUMBA_PTXLINK_HOST_DEVICE T& operator()(Indices... indices) const {
    const long long index[ndim] = {static_cast<long long>(indices)...};
    long long offset = 0;
    for (int axis = 0; axis < ndim; ++axis) {
      offset += index[axis] * strides[axis];
    }
    using byte = typename detail::value_of<T>::type;
    return *reinterpret_cast<T*>(reinterpret_cast<char*>(const_cast<byte*>(data)) + offset);
  }

  template <class Index, detail::enable_if<ndim == 1 && sizeof(Index) != 0> = 0>
  NUMBA_PTXLINK_HOST_DEVICE T& operator[](Index index) const {
    return (*this)(index);
  }

  /* The number of elements. */
  NUMBA_PTXLINK_HOST_DEVICE constexpr long long size() const {
    long long count = 1;
    for (int axis = 0; axis < ndim; ++axis) {
      count *= shape[axis];
    }
    return count;
  }
};

/* An array without dimensions: one element. */
template <class T>
struct array_view<T, 0> {
  T* data;

  array_view() = default;
  NUMBA_PTXLINK_HOST_DEVICE constexpr array_view(T* address) : data(address) {}

  NUMBA_PTXLINK_HOST_DEVICE T& operator()() const { return *data; }
  NUMBA_PTXLINK_HOST_DEVICE constexpr long long size() const { return 1; }
};

static_assert(sizeof(array_view<char, 0>) == 8 && alignof(array_view<char, 0>) == 8, "layout");
static_assert(sizeof(array_view<char, 1>) == 24 && alignof(array_view<char, 1>) == 8, "layout");
static_assert(sizeof(array_view<const double, 3>) == 56, "layout");

}  // namespace numba_ptxlink

#endif /* NUMBA_PTXLINK_ARRAY_VIEW_H */
