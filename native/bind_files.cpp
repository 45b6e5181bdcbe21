// Binds what moves rows between files, blocks in memory and batches. Arguments are those of
// relive._kernels_numpy.files and valid already.
#include <unistd.h>

#include <vector>

#include "bind_ring.hpp"
#include "crc32.hpp"
#include "steps.hpp"

namespace relive {
namespace {

constexpr std::int64_t WORTH_IT = 4096;  // bytes; from here on other threads may have the interpreter meanwhile

nb::object checksums(nb::handle rows) {
    const Column column = column_of(rows);
    const npy_intp n = PyArray_DIM(array(rows), 0);
    nb::object sums = fresh(NPY_UINT32, {n});
    auto* to = data<uint32_t>(sums);
    run(n * npy_intp(column.row) / WORTH_IT + WORTH_RELEASING * (n > WORTH_IT), [&] {
        for (npy_intp i = 0; i < n; ++i) to[i] = crc32(column.data + size_t(i) * column.stride, column.row);
    });
    return sums;
}

bool copy_both(nb::handle now, nb::handle later, nb::handle out) {
    const Column from = column_of(now), next = column_of(later), to = column_of(out);
    const npy_intp n = PyArray_DIM(array(now), 0);
    bool same = false;
    run(n * npy_intp(from.row) / WORTH_IT,
        [&] { same = copy_steps(to.data, from.data, next.data, size_t(n), from.row); });
    return same;
}

void scatter(nb::list blocks, nb::handle which, nb::handle rows, nb::handle out) {
    std::vector<Column> from;
    for (nb::handle block : blocks) from.push_back(column_of(block));
    const Column to = column_of(out);
    const auto* block = data<int64_t>(which);
    const auto* row = data<int64_t>(rows);
    const npy_intp n = PyArray_SIZE(array(which));
    constexpr npy_intp AHEAD = 8;
    const auto source = [&](npy_intp i) {
        const Column& column = from[size_t(block[i])];
        return column.data + size_t(row[i]) * column.stride;
    };
    run(n * npy_intp(to.row) / WORTH_IT + n, [&] {
        for (npy_intp i = 0; i < n; ++i) {
            if (i + AHEAD < n && block[i + AHEAD] >= 0) prefetch_row(source(i + AHEAD), to.row);
            if (block[i] >= 0) copy_row(to.data + size_t(i) * to.stride, source(i), to.row);
        }
    });
}

nb::tuple read(nb::handle files, nb::handle offsets, nb::handle places, nb::handle out) {
    const Column to = column_of(out);
    const npy_intp n = PyArray_SIZE(array(files));
    nb::object sums = fresh(NPY_UINT32, {n});
    auto* sum = data<uint32_t>(sums);
    const auto* file = data<int64_t>(files);
    const auto* offset = data<int64_t>(offsets);
    const auto* place = data<int64_t>(places);
    npy_intp failed = -1;
    run(WORTH_RELEASING, [&] {  // a disk may be slow
        for (npy_intp i = 0; i < n; ++i) {
            char* row = to.data + size_t(place[i]) * to.stride;
            size_t got = 0;
            while (got < to.row) {
                const ssize_t count = pread(int(file[i]), row + got, to.row - got, off_t(offset[i]) + off_t(got));
                if (count <= 0) break;
                got += size_t(count);
            }
            if (got < to.row && failed < 0) failed = i;
            sum[i] = got < to.row ? 0 : crc32(row, to.row);
        }
    });
    return nb::make_tuple(failed, sums);
}

}  // namespace
}  // namespace relive

void bind_files(nanobind::module_& m) {
    m.def("checksums", &relive::checksums);
    m.def("copy_steps", &relive::copy_both);
    m.def("scatter_rows", &relive::scatter);
    m.def("read_rows", &relive::read);
}
