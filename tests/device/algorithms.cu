// Algorithms of Thrust and CUB, each compared with the standard library.
#include <cub/cub.cuh>
#include <thrust/copy.h>
#include <thrust/device_vector.h>
#include <thrust/host_vector.h>
#include <thrust/scan.h>
#include <thrust/sequence.h>
#include <thrust/unique.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <vector>

struct IsThird {
    __host__ __device__ bool operator()(int x) const { return x % 3 == 0; }
};

static int failures;

static void check(const char* name, bool right)
{
    if (!right) std::printf("%s is wrong\n", name), ++failures;
}

// Call a function of CUB twice: for the size of its temporary memory, and with that.
template <typename Function>
static void with_memory(Function function)
{
    std::size_t size = 0;
    function(nullptr, size);
    thrust::device_vector<char> memory(size);
    function(thrust::raw_pointer_cast(memory.data()), size);
}

int main()
{
    const int n = 5000;
    std::vector<int> values(n), expected(n);
    for (int i = 0; i < n; ++i) values[i] = (i * 7919) % 1009;
    thrust::device_vector<int> in = values, out(n), more(n), count(1);

    std::partial_sum(values.begin(), values.end(), expected.begin());
    thrust::inclusive_scan(in.begin(), in.end(), out.begin());
    check("thrust::inclusive_scan", thrust::host_vector<int>(out) == expected);
    check("thrust::reduce", thrust::reduce(in.begin(), in.end()) == expected.back());
    for (int i = 0; i < n; ++i) values[i] /= 9;
    out = values;
    expected = values;
    out.erase(thrust::unique(out.begin(), out.end()), out.end());
    expected.erase(std::unique(expected.begin(), expected.end()), expected.end());
    check("thrust::unique", thrust::host_vector<int>(out) == expected);

    in = values;
    out.resize(n);
    int *from = thrust::raw_pointer_cast(in.data()), *to = thrust::raw_pointer_cast(out.data());
    int *order = thrust::raw_pointer_cast(more.data()), *number = thrust::raw_pointer_cast(count.data());
    thrust::device_vector<int> indices(n);
    thrust::sequence(indices.begin(), indices.end());
    with_memory([&](void* memory, std::size_t& size) {
        cub::DeviceRadixSort::SortPairs(memory, size, from, to, thrust::raw_pointer_cast(indices.data()), order, n);
    });
    std::vector<int> by_value(n);
    std::iota(by_value.begin(), by_value.end(), 0);
    std::stable_sort(by_value.begin(), by_value.end(), [&](int a, int b) { return values[a] < values[b]; });
    check("cub::DeviceRadixSort", thrust::host_vector<int>(more) == by_value);
    with_memory([&](void* memory, std::size_t& size) { cub::DeviceReduce::Max(memory, size, from, number, n); });
    check("cub::DeviceReduce", count[0] == *std::max_element(values.begin(), values.end()));
    with_memory([&](void* memory, std::size_t& size) {
        cub::DeviceSelect::If(memory, size, from, to, number, n, IsThird{});
    });
    expected.clear();
    std::copy_if(values.begin(), values.end(), std::back_inserter(expected), IsThird{});
    out.resize(count[0]);
    check("cub::DeviceSelect", thrust::host_vector<int>(out) == expected);
    std::printf("%d failures\n", failures);
    return failures != 0;
}
