#if defined(NUMBA_PTXLINK_LAUNCH) && NUMBA_PTXLINK_LAUNCH != 2
#error "two launchers were exported by different releases of numba-ptxlink; export both again"
#endif
#if !defined(NUMBA_PTXLINK_LAUNCH)
#define NUMBA_PTXLINK_LAUNCH 2
/* cudaStream_t and CUstream are pointers to this structure. */
struct CUstream_st;

namespace numba_ptxlink {

/*
 * The blocks of a grid, or the threads of a block: one to three integers, or CUDA's dim3. Numbers that are negative or
 * too large become 0, which the driver rejects.
 */
struct extent {
  template <class Number>
  static constexpr bool is_number = std::is_integral<Number>::value && !std::is_same<Number, bool>::value;

  unsigned x, y, z;

  constexpr extent() noexcept : x(1), y(1), z(1) {}

  template <class X, class Y = unsigned, class Z = unsigned,
            class = std::enable_if_t<is_number<X> && is_number<Y> && is_number<Z>>>
  constexpr extent(X x_, Y y_ = 1, Z z_ = 1) noexcept : x(checked(x_)), y(checked(y_)), z(checked(z_)) {}

  template <class Dim3, class = std::enable_if_t<is_number<decltype(Dim3::x)> && is_number<decltype(Dim3::y)> &&
                                                 is_number<decltype(Dim3::z)> && sizeof(Dim3) == 12>>
  constexpr extent(const Dim3& other) noexcept : extent(other.x, other.y, other.z) {}

 private:
  template <class Number>
  static constexpr unsigned checked(Number number) noexcept {
    return static_cast<unsigned long long>(number) > 0x7fffffffu ? 0u : static_cast<unsigned>(number);
  }
};

/*
 * The bytes of dynamic shared memory of a block, and further attributes of a launch, such as
 * `numba_ptxlink::attributes(1024).cluster({2, 1}).programmatic_dependent()`. An integer converts to this class.
 */
class attributes {
 public:
  std::size_t shared_bytes;
  extent cluster_blocks;
  bool has_cluster = false, is_cooperative = false, is_programmatic_dependent = false;

  template <class Number = int, class = std::enable_if_t<extent::is_number<Number>>>
  constexpr attributes(Number shared = 0) noexcept : shared_bytes(static_cast<std::size_t>(shared)) {}

  /* The blocks of a cluster, whose numbers divide those of the grid. The default are those that the kernel declares. */
  constexpr attributes& cluster(const extent& blocks) noexcept {
    cluster_blocks = blocks;
    has_cluster = true;
    return *this;
  }

  /* Let all blocks run at once. A kernel that synchronises its grid is always launched in this way. */
  constexpr attributes& cooperative() noexcept {
    is_cooperative = true;
    return *this;
  }

  /* Let the kernel start before the previous kernel of the stream has ended. */
  constexpr attributes& programmatic_dependent() noexcept {
    is_programmatic_dependent = true;
    return *this;
  }
};

namespace launch {

/* CUlaunchAttribute and CUlaunchConfig of cuda.h. */
struct alignas(8) attribute {
  int id, padding;
  unsigned value[16];
};

struct config {
  unsigned grid[3], block[3], shared_bytes;
  CUstream_st* stream;
  attribute* attributes;
  unsigned count;
};

/* The functions of libcuda.so.1 that launches need; `state` is 0, or the error of the search for them or of cuInit. */
struct driver {
  int state = 0;
  int (*init)(unsigned) = nullptr;
  int (*error_name)(int, const char**) = nullptr;
  int (*get_context)(void**) = nullptr;
  int (*set_context)(void*) = nullptr;
  int (*get_device)(int*) = nullptr;
  int (*retain_context)(void**, int) = nullptr;
  int (*context_of_stream)(CUstream_st*, void**) = nullptr;
  int (*load)(void**, const void*, const void*, void**, unsigned, const void*, void**, unsigned) = nullptr;
  int (*unload)(void*) = nullptr;
  int (*get_kernel)(void**, void*, const char*) = nullptr;
  int (*get_device_attribute)(int*, int, int) = nullptr;
  int (*get_attribute)(int*, int, void*, int) = nullptr;
  int (*set_attribute)(int, int, void*, int) = nullptr;
  int (*launch)(const config*, void*, void**, void**) = nullptr;

  driver() noexcept {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      state = 303; /* CUDA_ERROR_SHARED_OBJECT_INIT_FAILED */
      return;
    }
    find(library, "cuInit", init);
    find(library, "cuGetErrorName", error_name);
    find(library, "cuCtxGetCurrent", get_context);
    find(library, "cuCtxSetCurrent", set_context);
    find(library, "cuCtxGetDevice", get_device);
    find(library, "cuDevicePrimaryCtxRetain", retain_context);
    find(library, "cuStreamGetCtx", context_of_stream);
    find(library, "cuLibraryLoadData", load);
    find(library, "cuLibraryUnload", unload);
    find(library, "cuLibraryGetKernel", get_kernel);
    find(library, "cuDeviceGetAttribute", get_device_attribute);
    find(library, "cuKernelGetAttribute", get_attribute);
    find(library, "cuKernelSetAttribute", set_attribute);
    find(library, "cuLaunchKernelEx", launch);
    if (state == 0) {
      state = init(0);
    }
  }

 private:
  template <class Function>
  void find(void* library, const char* name, Function& function) noexcept {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function == nullptr) {
      state = 302; /* CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND: the driver is older than CUDA 12 */
    }
  }
};

inline const driver& get_driver() noexcept {
  static const driver loaded;
  return loaded;
}

/* If the thread has no current context, make that of `stream`, or of the first device, current. */
inline int enter(CUstream_st* stream) noexcept {
  const driver& api = get_driver();
  void* context = nullptr;
  if (api.state != 0) {
    return api.state;
  }
  if (const int error = api.get_context(&context)) {
    return error;
  }
  if (context != nullptr) {
    return 0;
  }
  /* 0, 1 and 2 are the default streams of the current context. */
  const bool is_special = reinterpret_cast<std::uintptr_t>(stream) <= 2;
  const int error =
      is_special ? api.retain_context(&context, 0) : api.context_of_stream(stream, &context);
  if (error != 0) {
    return error;
  }
  return api.set_context(context);
}

/*
 * Code that the driver loads when it is first needed, for all contexts. If two threads load the code at once, one of
 * them unloads its copy again. After an error, the next call tries again.
 */
class library {
 public:
  constexpr explicit library(const void* image) noexcept : image_(image), handle_(nullptr) {}

  int load(void*& handle) noexcept {
    const driver& api = get_driver();
    handle = handle_.load(std::memory_order_acquire);
    if (handle != nullptr) {
      return 0;
    }
    if (const int error = api.load(&handle, image_, nullptr, nullptr, 0, nullptr, nullptr, 0)) {
      return error;
    }
    void* other = nullptr;
    if (!handle_.compare_exchange_strong(other, handle)) {
      api.unload(handle);
      handle = other;
    }
    return 0;
  }

 private:
  const void* image_;
  std::atomic<void*> handle_;
};

class kernel {
 public:
  constexpr kernel(library& code, const char* name, bool is_cooperative) noexcept
      : code_(code), name_(name), is_cooperative_(is_cooperative), handle_(nullptr), devices_(0) {}

  int load(void*& handle) noexcept {
    handle = handle_.load(std::memory_order_acquire);
    if (handle != nullptr) {
      return 0;
    }
    void* code = nullptr;
    if (const int error = code_.load(code)) {
      return error;
    }
    if (const int error = get_driver().get_kernel(&handle, code, name_)) {
      return error;
    }
    handle_.store(handle, std::memory_order_release);
    return 0;
  }

  int operator()(CUstream_st* stream, const extent& grid, const extent& block, const numba_ptxlink::attributes& how,
                 void** arguments) noexcept {
    void* handle = nullptr;
    if (const int error = enter(stream)) {
      return error;
    }
    if (const int error = load(handle)) {
      return error;
    }
    if (how.shared_bytes > 0xffffffffu) {
      return 1; /* CUDA_ERROR_INVALID_VALUE: the driver's number has 32 bits */
    }
    if (how.shared_bytes != 0) {
      if (const int error = allow_shared(handle)) {
        return error;
      }
    }
    attribute list[3] = {};
    unsigned count = 0;
    if (is_cooperative_ || how.is_cooperative) {
      list[count++] = {2, 0, {1}}; /* CU_LAUNCH_ATTRIBUTE_COOPERATIVE */
    }
    if (how.is_programmatic_dependent) {
      list[count++] = {6, 0, {1}}; /* CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION */
    }
    if (how.has_cluster) {
      const extent& blocks = how.cluster_blocks;
      list[count++] = {4, 0, {blocks.x, blocks.y, blocks.z}}; /* CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION */
      if (std::uint64_t{blocks.x} * blocks.y * blocks.z > 8) {
        if (const int error = allow_large_cluster(handle)) {
          return error;
        }
      }
    }
    const config with{{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, static_cast<unsigned>(how.shared_bytes),
                      stream, list, count};
    return get_driver().launch(&with, handle, arguments, nullptr);
  }

 private:
  /*
   * More than 48 KiB of shared memory, static and dynamic, need an opt-in for the kernel. Set the largest size, once
   * for each device: with the size of one launch, a launch by another thread with more memory could fail.
   */
  int allow_shared(void* handle) noexcept {
    const driver& api = get_driver();
    int device = 0;
    int most = 0;
    int fixed = 0;
    if (const int error = api.get_device(&device)) {
      return error;
    }
    const std::uint64_t bit = device < 64 ? std::uint64_t{1} << device : 0;
    if ((devices_.load(std::memory_order_acquire) & bit) != 0) {
      return 0;
    }
    /* CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN */
    if (const int error = api.get_device_attribute(&most, 97, device)) {
      return error;
    }
    /* CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES */
    if (const int error = api.get_attribute(&fixed, 1, handle, device)) {
      return error;
    }
    /* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */
    if (const int error = api.set_attribute(8, most > fixed ? most - fixed : 0, handle, device)) {
      return error;
    }
    devices_.fetch_or(bit, std::memory_order_release);
    return 0;
  }

  int allow_large_cluster(void* handle) noexcept {
    int device = 0;
    if (const int error = get_driver().get_device(&device)) {
      return error;
    }
    /* CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED */
    return get_driver().set_attribute(14, 1, handle, device);
  }

  library& code_;
  const char* name_;
  bool is_cooperative_;
  std::atomic<void*> handle_;
  std::atomic<std::uint64_t> devices_; /* a bit for each device where allow_shared has set the largest size */
};

}  // namespace launch

/* The driver's name for the error that a launch returned, such as "CUDA_ERROR_INVALID_VALUE". */
inline const char* error_name(int error) noexcept {
  const launch::driver& api = launch::get_driver();
  const char* name = nullptr;
  if (api.error_name != nullptr && api.error_name(error, &name) == 0 && name != nullptr) {
    return name;
  }
  return error == 303 ? "no libcuda.so.1 could be loaded" : "unknown error";
}

}  // namespace numba_ptxlink
#endif
