// Programs of the runtime API that run on the CPU device: the first argument chooses one.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

__constant__ float scale;
__device__ float offsets[4] = {1, 2, 3, 4};
__managed__ int calls;

template <typename T>
__global__ void saxpy(const T* x, T* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = scale * x[i] + offsets[i % 4];  // line 18
        atomicAdd(&calls, 1);
    }
}

__global__ void reverse(int* x)
{
    extern __shared__ int shared[];
    shared[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

__global__ void unsupported() { asm volatile("no.such.instruction;"); }

static void report(const char* what) { std::printf("%s: %s\n", what, cudaGetErrorName(cudaGetLastError())); }

template <typename T>
static T run(int n, float factor)
{
    std::vector<T> x(n, T(2)), y(n);
    T *device_x, *device_y;
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    cudaMalloc(&device_x, n * sizeof(T));
    cudaMallocAsync(&device_y, n * sizeof(T), stream);
    cudaMemcpyAsync(device_x, x.data(), n * sizeof(T), cudaMemcpyHostToDevice, stream);
    cudaMemcpyToSymbolAsync(scale, &factor, sizeof factor, 0, cudaMemcpyHostToDevice, stream);
    saxpy<<<(n + 63) / 64, 64, 0, stream>>>(device_x, device_y, n);
    cudaMemcpyAsync(y.data(), device_y, n * sizeof(T), cudaMemcpyDeviceToHost, stream);
    cudaStreamSynchronize(stream);
    cudaFree(device_x);
    cudaFreeAsync(device_y, stream);
    cudaStreamDestroy(stream);
    T sum = 0;
    for (T value : y) sum += value;
    return sum;
}

static int values()
{
    float sum = run<float>(100, 3);
    double other_sum = run<double>(8, 4);
    std::printf("%g %g, %d calls\n", sum, other_sum, calls);
    float changed[] = {5, 6};
    cudaMemcpyToSymbol(offsets, changed, sizeof changed, 2 * sizeof(float));
    std::printf("%g\n", run<float>(4, 1));

    int *x, sizes[2];
    cudaMallocManaged(&x, 64 * sizeof *x);
    for (int i = 0; i < 64; ++i) x[i] = i;
    cudaLaunchConfig_t config = {};
    config.gridDim = 1, config.blockDim = 64, config.dynamicSmemBytes = 64 * sizeof *x;
    cudaLaunchKernelEx(&config, reverse, x);
    cudaDeviceSynchronize();
    cudaFuncAttributes attributes;
    cudaFuncGetAttributes(&attributes, reverse);
    cudaOccupancyMaxPotentialBlockSize(&sizes[0], &sizes[1], reverse);
    cudaPointerAttributes pointer;
    cudaPointerGetAttributes(&pointer, x);
    std::printf("%d %d, at most %d threads, block %d, %s\n", x[0], x[63], attributes.maxThreadsPerBlock, sizes[1],
                pointer.type == cudaMemoryTypeManaged ? "managed" : "not managed");

    char padded[2][16] = {"ab", "cd"}, dense[2][2];
    void* pitched;
    size_t pitch;
    cudaMallocPitch(&pitched, &pitch, 16, 2);
    cudaMemcpy2D(pitched, pitch, padded, 16, 16, 2, cudaMemcpyHostToDevice);
    cudaMemcpy2D(dense, 2, pitched, pitch, 2, 2, cudaMemcpyDeviceToHost);
    std::printf("%.4s\n", dense[0]);

    cudaDeviceProp properties;
    cudaGetDeviceProperties(&properties, 0);
    std::printf("%d.%d, warps of %d, %zu bytes, a bus of %d bits\n", properties.major, properties.minor,
                properties.warpSize, properties.sharedMemPerBlock, properties.memoryBusWidth);
    report("values");
    return 0;
}

static int errors()
{
    int value = 1, *device_value;
    reverse<<<1, 2000>>>(nullptr);
    report("block");
    cudaMemcpy(&value, &value, sizeof value, static_cast<cudaMemcpyKind>(9));
    report("direction");
    cudaMemcpy2D(&value, 1, &value, 1, 2, 1, cudaMemcpyHostToHost);
    report("pitch");
    cudaSetDevice(99);
    report("device");
    cudaMemcpyToSymbol(offsets, &value, sizeof value, 14);
    report("symbol");
    cudaGraph_t graph;
    cudaGraphCreate(&graph, 0);
    cudaGraphCreate(&graph, 0);
    report("graph");
    cudaMalloc(&device_value, sizeof value);
    saxpy<<<1, 2>>>(reinterpret_cast<float*>(device_value), reinterpret_cast<float*>(device_value), 2);
    report("launch");
    std::printf("%s\n", cudaGetErrorName(cudaMemcpy(&value, device_value, sizeof value, cudaMemcpyDeviceToHost)));
    cudaDeviceReset();
    run<float>(4, 1);
    report("reset");
    unsupported<<<1, 1>>>();
    std::printf("%s\n", cudaGetErrorName(cudaDeviceSynchronize()));
    return 0;
}

// Memory of a pool is for kernels of its device, and of those that it gives access.
static int peers()
{
    int* x;
    cudaMemPool_t pool;
    cudaMemAccessDesc access = {{cudaMemLocationTypeDevice, 1}, cudaMemAccessFlagsProtReadWrite};
    cudaMallocAsync(&x, sizeof *x, 0);
    cudaDeviceGetDefaultMemPool(&pool, 0);
    for (int attempt = 0; attempt < 2; ++attempt) {
        cudaSetDevice(1);
        reverse<<<1, 1, 4>>>(x);
        std::printf("%s\n", cudaGetErrorName(cudaDeviceSynchronize()));
        cudaDeviceReset();
        cudaMemPoolSetAccess(pool, &access, 1);
    }
    return 0;
}

static int threads()
{
    std::vector<std::thread> running;
    float sums[8];
    for (int number = 0; number < 8; ++number)
        running.emplace_back([&sums, number] { sums[number] = run<float>(1000 * (number + 1), 3); });
    for (std::thread& thread : running) thread.join();
    for (float sum : sums) std::printf("%g ", sum);
    std::printf("%d\n", calls);
    return 0;
}

// Code that the program loads itself, also after the device is reset.
static int libraries()
{
    const char* ptx = ".version 7.5\n.target sm_75\n.address_size 64\n.visible .global .u32 number = 7;\n"
                      ".visible .entry set(.param .u64 p)\n{\n.reg .b32 %r1;\n.reg .b64 %rd1;\n"
                      "ld.param.u64 %rd1, [p];\nld.global.u32 %r1, [number];\nst.global.u32 [%rd1], %r1;\nret;\n}\n";
    for (int attempt = 0; attempt < 2; ++attempt) {
        cudaLibrary_t library;
        cudaKernel_t kernel;
        int *value, *number;
        size_t size;
        cudaLibraryLoadData(&library, ptx, nullptr, nullptr, 0, nullptr, nullptr, 0);
        cudaLibraryGetKernel(&kernel, library, "set");
        cudaLibraryGetGlobal(reinterpret_cast<void**>(&number), &size, library, "number");
        cudaMallocManaged(&value, sizeof *value);
        void* values[] = {&value};
        cudaLaunchKernel(reinterpret_cast<const void*>(kernel), 1, 1, values, 0, nullptr);
        cudaDeviceSynchronize();
        std::printf("%d, %d bytes, ", *value, static_cast<int>(size));
        cudaLibraryUnload(library);
        cudaDeviceReset();
    }
    report("libraries");
    return 0;
}

int main(int, char** arguments)
{
    return !std::strcmp(arguments[1], "values")   ? values()
           : !std::strcmp(arguments[1], "errors") ? errors()
           : !std::strcmp(arguments[1], "peers")  ? peers()
           : !std::strcmp(arguments[1], "libraries") ? libraries()
                                                  : threads();
}
