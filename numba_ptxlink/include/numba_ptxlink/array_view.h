/*
 * numba_ptxlink/array_view.h: the type of array parameters and results of exported functions.
 *
 * C++17 without includes: spans and mdspans of any library are recognised by their members.
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
/* Suppress nvcc's warning that a host device function calls a host function, such as a member of std::span. */
#if defined(__NVCC__)
#define NUMBA_PTXLINK_NO_EXEC_CHECK _Pragma("nv_exec_check_disable")
#else
#define NUMBA_PTXLINK_NO_EXEC_CHECK
#endif

namespace numba_ptxlink {

/* Row-major without gaps: Numba's `T[:, ::1]`. */
struct layout_c {};
/* Column-major without gaps: Numba's `T[::1, :]`. */
struct layout_f {};
/* Any strides: Numba's `T[:, :]`. */
struct layout_any {};

template <class T, int ndim, class Layout = layout_any>
struct array_view;

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

template <class T>
struct without_reference {
  using type = T;
};
template <class T>
struct without_reference<T&> {
  using type = T;
};

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

template <class...>
struct voids {
  using type = void;
};

using size_type = decltype(sizeof(0));
template <int ndim>
using numbers = long long[static_cast<size_type>(ndim)];

template <class T>
NUMBA_PTXLINK_HOST_DEVICE T&& instance() noexcept;
template <class T>
NUMBA_PTXLINK_HOST_DEVICE int accept(T*);

NUMBA_PTXLINK_HOST_DEVICE inline void trap() {
#if defined(__CUDA_ARCH__)
  __trap();
#else
  __builtin_trap();
#endif
}

/* Whether From* converts to To*, and both point to the same type, except for const. */
template <class From, class To>
inline constexpr bool adds_const_only =
    same<typename value_of<From>::type, typename value_of<To>::type> &&
    (same<To, const typename value_of<To>::type> || same<From, typename value_of<From>::type>);

/* Whether Pointer converts to T* without a change of the element type, except for const. */
template <class Pointer, class T, class = void>
inline constexpr bool points_to = false;
template <class Pointer, class T>
inline constexpr bool points_to<
    Pointer, T,
    typename voids<decltype(accept<T>(instance<Pointer>())), decltype(*instance<Pointer>())>::type> =
    adds_const_only<typename without_reference<decltype(*instance<Pointer>())>::type, T>;

/* Whether every value of the type Number fits in long long, so that braces accept it: no float, no unsigned 64 bits. */
struct integer {
  long long value;
};
template <class Number, class = void>
inline constexpr bool widens = false;
template <class Number>
inline constexpr bool
    widens<Number, typename voids<decltype(integer{instance<const Number&>()})>::type> = true;

template <class Number>
inline constexpr bool is_large_unsigned =
    same<Number, unsigned long> || same<Number, unsigned long long>;
template <class Number>
inline constexpr bool is_integer = widens<Number> || is_large_unsigned<Number>;

/* Convert a size, which may be an unsigned 64-bit integer, to an extent; trap if it does not fit. */
template <class Number>
NUMBA_PTXLINK_HOST_DEVICE constexpr long long to_extent(const Number& number) {
  if constexpr (widens<Number>) {
    return integer{number}.value;
  } else {
    if (number > static_cast<Number>(~0ull >> 1)) {
      trap();
    }
    return static_cast<long long>(number);
  }
}

/* An integer of any type, converted to long long. */
struct number {
  template <class Integer, enable_if<is_integer<Integer>> = 0>
  NUMBA_PTXLINK_HOST_DEVICE constexpr number(Integer integer) : value(to_extent(integer)) {}

  long long value;
};

/* One number for each dimension: integers of any types in braces, or an array of integers. */
template <int ndim>
struct list {
  template <class... Integers, enable_if<sizeof...(Integers) == ndim && (is_integer<Integers> && ...)> = 0>
  NUMBA_PTXLINK_HOST_DEVICE constexpr list(Integers... integers) : values{to_extent(integers)...} {}

  template <class Integer, enable_if<is_integer<Integer>> = 0>
  NUMBA_PTXLINK_HOST_DEVICE constexpr list(const Integer (&array)[static_cast<size_type>(ndim)]) : values{} {
    for (int axis = 0; axis < ndim; ++axis) {
      values[axis] = to_extent(array[axis]);
    }
  }

  numbers<ndim> values;
};
/* In one dimension, an integer without braces is accepted, too, by way of `number`. */
template <>
struct list<1> {
  NUMBA_PTXLINK_HOST_DEVICE constexpr list(number only) : values{only.value} {}

  template <class Integer, enable_if<is_integer<Integer>> = 0>
  NUMBA_PTXLINK_HOST_DEVICE constexpr list(const Integer (&array)[1]) : values{to_extent(array[0])} {}

  numbers<1> values;
};

/* Whether Span has data(), a pointer to elements T, and size(). */
template <class Span, class T, class = void>
inline constexpr bool is_span = false;
template <class Span, class T>
inline constexpr bool is_span<Span, T,
                              typename voids<decltype(instance<Span>().data()),
                                             decltype(to_extent(instance<Span>().size()))>::type> =
    points_to<decltype(instance<Span>().data()), T>;

/* Whether Mdspan is a strided mdspan of ndim dimensions, whose accessor returns references to elements in memory. */
template <class Mdspan, class T, int ndim, class = void>
inline constexpr bool is_mdspan = false;
template <class Mdspan, class T, int ndim>
inline constexpr bool is_mdspan<
    Mdspan, T, ndim,
    typename voids<typename Mdspan::mapping_type, typename Mdspan::layout_type,
                   enable_if<Mdspan::rank() == static_cast<size_type>(ndim) && Mdspan::is_always_strided()>,
                   enable_if<same<typename Mdspan::reference, typename Mdspan::element_type&>>,
                   decltype(instance<const Mdspan&>().data_handle())>::type> =
    points_to<decltype(instance<const Mdspan&>().data_handle()), T>;

/*
 * The type Extents with other values: 2 on one axis and 1 on the others, as in std::extents<int, 1, 2, 1>. Every index
 * type can hold their product, 2.
 */
template <template <class, size_type...> class Extents, class Index, int rank, int axis, size_type... values>
struct one_axis : one_axis<Extents, Index, rank - 1, axis, (rank - 1 == axis ? 2 : 1), values...> {};
template <template <class, size_type...> class Extents, class Index, int axis, size_type... values>
struct one_axis<Extents, Index, 0, axis, values...> {
  using type = Extents<Index, values...>;
};
template <class Extents, int axis>
struct probe {};
template <template <class, size_type...> class Extents, class Index, size_type... values, int axis>
struct probe<Extents<Index, values...>, axis>
    : one_axis<Extents, Index, static_cast<int>(sizeof...(values)), axis> {};

template <class Mdspan, int axis>
using probe_mapping = typename Mdspan::layout_type::template mapping<
    typename probe<typename Mdspan::extents_type, axis>::type>;

/*
 * Whether the mapping of Mdspan has the order of axes of Layout. An extent of 2 on one axis doubles the strides of the
 * axes outside of it, and no others: those before it in C order, and those after it in Fortran order.
 */
template <class Mdspan, class Layout, int ndim, int axis = 0>
NUMBA_PTXLINK_HOST_DEVICE constexpr bool has_order_of() {
  if constexpr (axis < ndim) {
    const probe_mapping<Mdspan, axis> mapping{};
    for (int other = 0; other < ndim; ++other) {
      const bool outer = same<Layout, layout_f> ? other > axis : other < axis;
      if (static_cast<long long>(mapping.stride(static_cast<size_type>(other))) != (outer ? 2 : 1)) {
        return false;
      }
    }
    return has_order_of<Mdspan, Layout, ndim, axis + 1>();
  } else {
    return true;
  }
}

/* Whether every Mdspan of this type has the layout Layout: it is contiguous, with its axes in this order. */
template <class Mdspan, class Layout, int ndim, class = void>
inline constexpr bool mdspan_fits = same<Layout, layout_any>;
template <class Mdspan, int ndim, class Layout>
inline constexpr bool
    mdspan_fits<Mdspan, Layout, ndim,
                typename voids<enable_if<!same<Layout, layout_any> && Mdspan::is_always_exhaustive()>,
                               probe_mapping<Mdspan, 0>>::type> = has_order_of<Mdspan, Layout, ndim>();

/* Set the strides, in bytes, of a contiguous array. */
template <class Layout, size_type ndim>
NUMBA_PTXLINK_HOST_DEVICE constexpr void set_strides(long long (&strides)[ndim],
                                                     const long long (&shape)[ndim],
                                                     size_type itemsize) {
  long long stride = static_cast<long long>(itemsize);
  for (size_type step = 0; step < ndim; ++step) {
    const size_type axis = same<Layout, layout_f> ? step : ndim - 1 - step;
    strides[axis] = stride;
    stride *= shape[axis];
  }
}

/* Whether every array of layout From has the layout To, too. In one dimension, C and Fortran order are the same. */
template <class From, class To, int ndim>
inline constexpr bool layout_fits =
    same<From, To> || same<To, layout_any> || (ndim == 1 && !same<From, layout_any>);

}  // namespace detail

/*
 * A view of an array of `ndim` dimensions; it does not own the memory. `shape` is in elements, `strides` in bytes.
 * Functions ignore the strides of a contiguous layout, and compute them from the shape. Every view converts to
 * a view of constant elements, and every contiguous view to layout_any; to_contiguous() converts back.
 */
template <class T, int ndim, class Layout>
struct array_view {
  static_assert(ndim > 0, "ndim, the number of dimensions, must not be negative");
  static_assert(detail::same<Layout, layout_c> || detail::same<Layout, layout_f> ||
                    detail::same<Layout, layout_any>,
                "the layout is layout_c, layout_f or layout_any");

  T* data;
  detail::numbers<ndim> shape;
  detail::numbers<ndim> strides;

  array_view() = default;

  /* A contiguous array: an address and one extent for each dimension. With any layout it is in C order. */
  template <class... Extents,
            detail::enable_if<sizeof...(Extents) == ndim && (detail::is_integer<Extents> && ...)> = 0>
  NUMBA_PTXLINK_HOST_DEVICE constexpr array_view(T* address, Extents... extents)
      : data(address), shape{detail::to_extent(extents)...}, strides{} {
    detail::set_strides<Layout>(strides, shape, sizeof(T));
  }

  /* An array of any layout: an address, extents, and strides in bytes, which may be negative. */
  template <class Any = Layout, detail::enable_if<detail::same<Any, layout_any>> = 0>
  NUMBA_PTXLINK_HOST_DEVICE constexpr array_view(T* address, const detail::list<ndim>& extents,
                                                 const detail::list<ndim>& byte_strides)
      : data(address), shape{}, strides{} {
    for (int axis = 0; axis < ndim; ++axis) {
      shape[axis] = extents.values[axis];
      strides[axis] = byte_strides.values[axis];
    }
  }

  /* Another view of the same array. */
  template <class From, class FromLayout,
            detail::enable_if<detail::adds_const_only<From, T> &&
                              detail::layout_fits<FromLayout, Layout, ndim>> = 0>
  NUMBA_PTXLINK_HOST_DEVICE constexpr array_view(const array_view<From, ndim, FromLayout>& view)
      : data(view.data), shape{}, strides{} {
    for (int axis = 0; axis < ndim; ++axis) {
      shape[axis] = view.shape[axis];
      strides[axis] = view.strides[axis];
    }
  }

  /* From cuda::std::span, std::span, or another container with contiguous elements, data() and size(). */
  NUMBA_PTXLINK_NO_EXEC_CHECK
  template <class Span, detail::enable_if<ndim == 1 && detail::is_span<Span&, T>> = 0>
  NUMBA_PTXLINK_HOST_DEVICE constexpr array_view(Span&& span) : array_view(span.data(), span.size()) {}

  /*
   * From cuda::std::mdspan or std::mdspan: layout_right is C order and layout_left Fortran order. Other strided
   * layouts convert to layout_any.
   */
  NUMBA_PTXLINK_NO_EXEC_CHECK
  template <class Mdspan, detail::enable_if<detail::is_mdspan<Mdspan, T, ndim> &&
                                            detail::mdspan_fits<Mdspan, Layout, ndim>> = 0>
  NUMBA_PTXLINK_HOST_DEVICE constexpr array_view(const Mdspan& mdspan)
      : data(mdspan.data_handle()), shape{}, strides{} {
    for (int axis = 0; axis < ndim; ++axis) {
      const auto rank = static_cast<detail::size_type>(axis);
      shape[axis] = detail::to_extent(mdspan.extent(rank));
      strides[axis] = detail::to_extent(mdspan.stride(rank)) * static_cast<long long>(sizeof(T));
    }
  }

  /* The element at one index for each dimension. Negative indices do not count from the end, unlike in Python. */
  template <class... Indices,
            detail::enable_if<sizeof...(Indices) == ndim && (detail::is_integer<Indices> && ...)> = 0>
  NUMBA_PTXLINK_HOST_DEVICE T& operator()(Indices... indices) const {
    const detail::numbers<ndim> index = {static_cast<long long>(indices)...};
    long long offset = 0;
    for (int axis = 0; axis < ndim; ++axis) {
      offset += index[axis] * strides[axis];
    }
    using byte = typename detail::value_of<T>::type;
    return *reinterpret_cast<T*>(reinterpret_cast<char*>(const_cast<byte*>(data)) + offset);
  }

  template <class Index, detail::enable_if<ndim == 1 && detail::is_integer<Index>> = 0>
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

/* An array without dimensions: one element. All layouts are the same. */
template <class T, class Layout>
struct array_view<T, 0, Layout> {
  T* data;

  array_view() = default;
  NUMBA_PTXLINK_HOST_DEVICE constexpr array_view(T* address) : data(address) {}

  template <class From, class FromLayout, detail::enable_if<detail::adds_const_only<From, T>> = 0>
  NUMBA_PTXLINK_HOST_DEVICE constexpr array_view(const array_view<From, 0, FromLayout>& view)
      : data(view.data) {}

  NUMBA_PTXLINK_NO_EXEC_CHECK
  template <class Mdspan, detail::enable_if<detail::is_mdspan<Mdspan, T, 0>> = 0>
  NUMBA_PTXLINK_HOST_DEVICE constexpr array_view(const Mdspan& mdspan) : data(mdspan.data_handle()) {}

  NUMBA_PTXLINK_HOST_DEVICE T& operator()() const { return *data; }
  NUMBA_PTXLINK_HOST_DEVICE constexpr long long size() const { return 1; }
};

/* Whether the elements are contiguous in the order of Layout, by NumPy's rules. */
template <class Layout, class T, int ndim, class From>
NUMBA_PTXLINK_HOST_DEVICE constexpr bool is_contiguous(const array_view<T, ndim, From>& view) {
  if constexpr (ndim > 0 && !detail::same<Layout, layout_any>) {
    long long stride = static_cast<long long>(sizeof(T));
    bool contiguous = true;
    for (int step = 0; step < ndim; ++step) {
      const int axis = detail::same<Layout, layout_f> ? step : ndim - 1 - step;
      /* An empty array is contiguous. The stride of an axis with one element is never used. */
      if (view.shape[axis] == 0) {
        return true;
      }
      contiguous = contiguous && (view.shape[axis] == 1 || view.strides[axis] == stride);
      stride *= view.shape[axis];
    }
    return contiguous;
  } else {
    return true;
  }
}

/* The same array with the layout Layout, without a check of the strides. */
template <class Layout, class T, int ndim, class From>
NUMBA_PTXLINK_HOST_DEVICE constexpr array_view<T, ndim, Layout> assume_contiguous(
    const array_view<T, ndim, From>& view) {
  static_assert(!detail::same<Layout, layout_any>, "the layout is layout_c or layout_f");
  array_view<T, ndim, Layout> contiguous{};
  contiguous.data = view.data;
  if constexpr (ndim > 0) {
    for (int axis = 0; axis < ndim; ++axis) {
      contiguous.shape[axis] = view.shape[axis];
    }
    detail::set_strides<Layout>(contiguous.strides, contiguous.shape, sizeof(T));
  }
  return contiguous;
}

/* The same array with the layout Layout; traps if is_contiguous<Layout>(view) is false. */
template <class Layout, class T, int ndim, class From>
NUMBA_PTXLINK_HOST_DEVICE constexpr array_view<T, ndim, Layout> to_contiguous(
    const array_view<T, ndim, From>& view) {
  if (!is_contiguous<Layout>(view)) {
    detail::trap();
  }
  return assume_contiguous<Layout>(view);
}

static_assert(sizeof(array_view<char, 0>) == 8 && alignof(array_view<char, 0>) == 8, "layout");
static_assert(sizeof(array_view<char, 1>) == 24 && alignof(array_view<char, 1>) == 8, "layout");
static_assert(sizeof(array_view<const double, 3, layout_c>) == 56, "layout");

}  // namespace numba_ptxlink

#endif /* NUMBA_PTXLINK_ARRAY_VIEW_H */
