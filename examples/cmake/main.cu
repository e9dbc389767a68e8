// CMake, make and Meson build a function and a kernel in Python into this C++ program. udfs.h declares them.
// Needs nvcc.
#include <cmath>
#include <cstdio>

#include "udfs.h"

__global__ void apply(float* values, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        values[i] = damp(values[i], i);
}

int main()
{
    const int count = 1000;
    float *values, greatest_error = 0;
    if (cudaError_t error = cudaMallocManaged(&values, count * sizeof(float))) {
        std::printf("Not run: %s\n", cudaGetErrorString(error));
        return 0;
    }
    for (int i = 0; i < count; ++i)
        values[i] = 1.0f + i;

    apply<<<(count + 255) / 256, 256>>>(values, count);
    scale<<<(count + 255) / 256, 256>>>({values, count}, 2.0f);
    if (cudaError_t error = cudaDeviceSynchronize()) {
        std::printf("Failed: %s\n", cudaGetErrorString(error));
        return 1;
    }

    for (int i = 0; i < count; ++i)
        greatest_error = std::fmax(greatest_error, std::fabs(values[i] - 2 * (1.0f + i) / (1 + 0.5f * i)));
    std::printf("%d elements, greatest error %g\n", count, greatest_error);
    return greatest_error < 1e-5f ? 0 : 1;
}
