// Binds what moves rows between files, blocks in memory and batches; relive._ring.kernels_numpy.files describes each
// call.
#include <atomic>
#include <limits>
#include <vector>

#include "bind_ring.hpp"
#include "checks.hpp"
#include "files.hpp"
#include "steps.hpp"

namespace relive {
namespace {

constexpr std::int64_t WORTH_IT = 4096;  // bytes; from here on other threads may have the interpreter meanwhile

// Rows that follow each other without a gap.
RowArray packed(nb::handle object, bool writable = false) {
    RowArray rows(object, writable);
    require(rows.rows <= 1 || rows.column.stride == rows.column.row,
            "relive._ring._native: rows with gaps between them");
    return rows;
}

nb::object checksums_of(nb::handle rows) {
    const RowArray given(rows);
    Out<std::uint32_t> sums(given.rows);
    const std::int64_t cost = given.rows * std::int64_t(given.column.row) / WORTH_IT;
    run(cost + WORTH_RELEASING * (given.rows > WORTH_IT), [&] { checksums(given.column, given.rows, sums.data); });
    return sums.array;
}

bool copy_both(nb::handle now, nb::handle later, nb::handle out) {
    const RowArray from = packed(now), next = packed(later), to = packed(out, true);
    require(from.rows >= 1 && next.rows == from.rows && to.rows == from.rows + 1 &&
                next.column.row == from.column.row && to.column.row == from.column.row,
            "relive._ring._native.copy_steps: shapes differ");
    bool same = false;
    run(from.rows * std::int64_t(from.column.row) / WORTH_IT, [&] {
        same = copy_steps(to.column.data, from.column.data, next.column.data, size_t(from.rows), from.column.row);
    });
    return same;
}

// A copy between two arrays of one size.
struct Copy {
    char* to;
    const char* from;
    std::size_t nbytes;
};

// Whether an array can become the other one's content as it is, with other byte order at most; `bytewise`: without.
bool fits(PyArrayObject* from, PyArrayObject* to, bool& bytewise) {
    PyArray_Descr *const one = PyArray_DESCR(from), *const other = PyArray_DESCR(to);
    if (PyArray_NDIM(from) != PyArray_NDIM(to) ||
        !PyArray_CompareLists(PyArray_DIMS(from), PyArray_DIMS(to), PyArray_NDIM(to)) ||
        (one != other && !PyArray_CanCastTypeTo(one, other, NPY_EQUIV_CASTING)))
        return false;
    bytewise = PyArray_IS_C_CONTIGUOUS(from) && PyArray_IS_C_CONTIGUOUS(to) && !PyDataType_REFCHK(one) &&
               (one == other || PyArray_EquivTypes(one, other));
    return true;
}

bool keep_arrays(nb::list arrays, nb::list places, InOut<std::uint8_t> head, nb::bytes facts) {
    require(facts.size() >= 16 && npy_intp(facts.size()) <= head.size,
            "relive._ring._native.keep_arrays: other facts than a head takes");
    if (arrays.size() != places.size()) return false;
    std::vector<Copy> copies;
    std::vector<std::pair<PyArrayObject*, PyArrayObject*>> others;
    std::size_t nbytes = 0;
    for (std::size_t i = 0; i < arrays.size(); ++i) {
        const nb::tuple given = nb::cast<nb::tuple>(arrays[i]), place = nb::cast<nb::tuple>(places[i]);
        require(given.size() == 2 && place.size() == 2 && PyArray_Check(given[1].ptr()) &&
                    PyArray_Check(place[1].ptr()) && PyArray_ISWRITEABLE(array(place[1])),
                "relive._ring._native.keep_arrays: no arrays with their paths");
        PyArrayObject *const from = array(given[1]), *const to = array(place[1]);
        bool bytewise = false;
        if (!given[0].equal(place[0]) || !fits(from, to, bytewise)) return false;
        if (bytewise) {
            copies.push_back({PyArray_BYTES(to), PyArray_BYTES(from), std::size_t(PyArray_NBYTES(to))});
            nbytes += copies.back().nbytes;
        } else {
            others.emplace_back(to, from);
        }
    }
    // Whoever finds one number twice finds all that lies between.
    char* const at = reinterpret_cast<char*>(head.data);
    std::memcpy(at, facts.c_str(), 8);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    std::memcpy(at + 16, facts.c_str() + 16, facts.size() - 16);
    for (const auto& [to, from] : others)
        if (PyArray_CopyInto(to, from) < 0) nb::raise_python_error();
    run(std::int64_t(nbytes) / WORTH_IT, [&] {
        for (const Copy& copy : copies) copy_bytes(copy.to, copy.from, copy.nbytes);
    });
    std::atomic_thread_fence(std::memory_order_seq_cst);
    std::memcpy(at + 8, facts.c_str(), 8);
    return true;
}

void put_rows(nb::list outs, In<std::int64_t> which, nb::list values) {
    require(outs.size() == values.size(), "relive._ring._native.put_rows: lengths differ");
    std::vector<std::pair<RowArray, RowArray>> pairs;
    for (std::size_t k = 0; k < outs.size(); ++k) {
        const auto& [to, from] = pairs.emplace_back(RowArray(outs[k], true), RowArray(values[k]));
        require(from.rows == which.size && from.column.row == to.column.row && from.type == to.type,
                "relive._ring._native.put_rows: shapes differ");
        within(which.data, which.size, to.rows, "relive._ring._native.put_rows: a row outside its array");
    }
    run(which.size, [&] {
        for (const auto& [to, from] : pairs)
            for (std::int64_t i = 0; i < which.size; ++i)
                copy_row(to.column.data + std::size_t(which.data[i]) * to.column.stride, from.column.at(i),
                         to.column.row);
    });
}

// Lanes of `rows` rows in all.
Lanes laid_out(std::int64_t rows, std::int64_t lanes, std::int64_t block) {
    require(
        lanes > 0 && block > 0 && rows > 0 && rows / lanes >= block && rows % lanes == 0 && rows / lanes % block == 0,
        "relive._ring._native: no whole blocks of every lane");
    return {lanes, block, rows / lanes};
}

const Range* ranges_in(const In<std::int64_t, 2>& ranges) {
    require(ranges.shape[1] == 3, "relive._ring._native: ranges are not `[n, 3]`");
    return reinterpret_cast<const Range*>(ranges.data);
}

constexpr const char* NO_ROWS = "relive._ring._native: rows that a lane does not have, or not as many";

void copy_ranges_of(nb::list columns, std::int64_t lanes, std::int64_t block, In<std::int64_t, 2> ranges,
                    nb::list outs) {
    require(columns.size() > 0 && outs.size() == columns.size(), "relive._ring._native.copy_ranges: lengths differ");
    const npy_intp rows = RowArray(columns[0]).rows, wanted = packed(outs[0]).rows;
    std::vector<Copied> copied;
    for (std::size_t i = 0; i < columns.size(); ++i) {
        const RowArray from(columns[i]), to = packed(outs[i], true);
        require(from.rows == rows && to.rows == wanted && to.column.row == from.column.row,
                "relive._ring._native.copy_ranges: shapes differ");
        copied.push_back({from.column, to.column.data});
    }
    const Lanes laid = laid_out(rows, lanes, block);
    const Range* asked = ranges_in(ranges);
    if (!sound_ranges(laid, asked, ranges.shape[0], wanted)) throw nb::index_error(NO_ROWS);
    run(wanted, [&] { copy_ranges(copied, laid, asked, ranges.shape[0]); });
}

void set_ranges_of(nb::list columns, std::int64_t lanes, std::int64_t block, In<std::int64_t, 2> ranges,
                   nb::list values) {
    require(columns.size() > 0 && values.size() == columns.size(), "relive._ring._native.set_ranges: lengths differ");
    const npy_intp rows = RowArray(columns[0]).rows, given = RowArray(values[0]).rows;
    std::vector<Filled> filled;
    for (std::size_t i = 0; i < columns.size(); ++i) {
        const RowArray to(columns[i], true), from = packed(values[i]);
        require(to.rows == rows && from.rows == given && to.column.row == from.column.row,
                "relive._ring._native.set_ranges: shapes differ");
        filled.push_back({to.column, from.column.data});
    }
    const Lanes laid = laid_out(rows, lanes, block);
    const Range* wanted = ranges_in(ranges);
    if (!sound_ranges(laid, wanted, ranges.shape[0], given, true)) throw nb::index_error(NO_ROWS);
    run(given, [&] { set_ranges(filled, laid, wanted, ranges.shape[0]); });
}

nb::object read_rows_of(In<std::int64_t> files, In<std::int64_t> offsets, In<std::int64_t> places, nb::handle out) {
    const RowArray to(out, true);
    require(offsets.size == files.size && places.size == files.size, "relive._ring._native.read_rows: lengths differ");
    within(places.data, places.size, to.rows, "relive._ring._native.read_rows: a row outside the output");
    within(files.data, files.size, std::numeric_limits<int>::max(),
           "relive._ring._native.read_rows: no file has such a number");
    within(offsets.data, offsets.size, LIMIT, "relive._ring._native.read_rows: an offset that no file reaches");
    Out<std::uint32_t> sums(files.size);
    std::int64_t failed = -1;
    run(WORTH_RELEASING, [&] {  // a disk may be slow
        failed = read_rows(files.data, offsets.data, places.data, files.size, to.column, sums.data);
    });
    return plan(plans().read, nb::int_(failed), sums.array);
}

nb::object read_spans_of(In<std::int64_t> files, In<std::int64_t> offsets, In<std::int64_t> sizes,
                         In<std::int64_t> places, InOut<std::uint8_t> out) {
    const npy_intp n = files.size;
    require(offsets.size == n && sizes.size == n && places.size == n,
            "relive._ring._native.read_spans: lengths differ");
    within(files.data, n, std::numeric_limits<int>::max(),
           "relive._ring._native.read_spans: no file has such a number");
    within(offsets.data, n, LIMIT, "relive._ring._native.read_spans: an offset that no file reaches");
    within(sizes.data, n, out.size + 1, "relive._ring._native.read_spans: bytes outside the output");
    within(places.data, n, out.size + 1, "relive._ring._native.read_spans: bytes outside the output");
    for (npy_intp i = 0; i < n; ++i)
        if (sizes.data[i] > out.size - places.data[i])
            throw nb::index_error("relive._ring._native.read_spans: bytes outside the output");
    Out<std::uint32_t> sums(n);
    std::int64_t failed = -1;
    run(WORTH_RELEASING, [&] {
        failed = read_spans(files.data, offsets.data, sizes.data, places.data, n, reinterpret_cast<char*>(out.data),
                            sums.data);
    });
    return plan(plans().read, nb::int_(failed), sums.array);
}

// Refuses rows that a file in memory, or what is kept of one, does not have; and offsets that no file reaches.
void check_rows(const Files& in, const std::vector<std::vector<npy_intp>>& sizes, const Wanted& wanted,
                const FieldPlan* fields, const std::vector<Column>& outs) {
    constexpr const char* BEYOND = "relive._ring._native.read_fields: a row that a file does not have";
    std::int64_t later = 0, farthest = 0, stride = 4 * in.columns;
    for (std::size_t j = 0; j < outs.size(); ++j) {
        later = std::max(later, fields[j].later), stride = std::max(stride, fields[j].stride);
        for (std::size_t f = 0; f < sizes.size(); ++f)
            if (in.kept[f].data && fields[j].kept >= 0 &&
                (in.kept[f].row < outs[j].row || std::size_t(fields[j].kept) > in.kept[f].row - outs[j].row))
                throw nb::index_error("relive._ring._native.read_fields: bytes outside what is kept");
    }
    for (std::int64_t i = 0; i < wanted.n; ++i) {
        if (wanted.which[i] < 0) continue;
        const auto file = std::size_t(wanted.which[i]);
        const std::int64_t step = in.at(wanted.which[i])[1], row = wanted.rows[i];
        if (row < 0 || row >= LIMIT / 2) throw nb::index_error(BEYOND);
        farthest = std::max(farthest, row + later * step);
        for (std::size_t j = 0; j < sizes[file].size(); ++j)
            if (row + (in.held[file].empty() ? later : fields[j].later) * step >= sizes[file][j])
                throw nb::index_error(BEYOND);
    }
    if (double(farthest) * double(stride) >= double(LIMIT)) throw nb::index_error(BEYOND);
}

nb::object read_fields_of(In<std::int64_t, 2> files, nb::list kept, In<std::int64_t> which, In<std::int64_t> rows,
                          In<std::int64_t> targets, In<std::int64_t, 2> fields, nb::list outs) {
    const npy_intp count = files.shape[0], columns = files.shape[1], n = which.size;
    require(columns >= 4 && fields.shape[1] == 5 && npy_intp(kept.size()) == count && rows.size == n &&
                targets.size == n && npy_intp(outs.size()) == fields.shape[0],
            "relive._ring._native.read_fields: shapes differ");
    for (npy_intp i = 0; i < n; ++i)
        if (which.data[i] >= count) throw nb::index_error("relive._ring._native.read_fields: no such file");
    const auto* const plans = reinterpret_cast<const FieldPlan*>(fields.data);
    std::vector<Column> to;
    for (nb::handle given : outs) {
        const RowArray out(given, true);
        const FieldPlan& field = plans[to.size()];
        to.push_back(out.column);
        within(targets.data, n, out.rows, "relive._ring._native.read_fields: a row outside the output");
        require(field.place >= 0 && field.place < columns - 2 && field.stride >= 0 && (field.later | 1) == 1 &&
                    field.kept >= -1 && field.sum >= -1 && field.sum < columns - 4,
                "relive._ring._native.read_fields: no such field");
    }
    Files in{files.data, columns, {}, {}};
    std::vector<std::vector<npy_intp>> sizes;
    for (nb::handle given : kept) {
        const std::int64_t* const file = in.at(npy_intp(sizes.size()));
        within(file, 1, std::numeric_limits<int>::max(), "relive._ring._native.read_fields: no file has such a number");
        within(file + 1, columns - 1, LIMIT / 2, "relive._ring._native.read_fields: an offset that no file reaches");
        in.kept.emplace_back();
        in.held.emplace_back();
        sizes.emplace_back();
        if (nb::isinstance<nb::list>(given)) {
            for (nb::handle field : nb::cast<nb::list>(given)) {
                const RowArray from(field);
                require(in.held.back().size() < to.size() && from.column.row == to[in.held.back().size()].row,
                        "relive._ring._native.read_fields: rows of another size");
                in.held.back().push_back(from.column);
                sizes.back().push_back(from.rows);
            }
            require(in.held.back().size() == to.size(), "relive._ring._native.read_fields: another number of fields");
        } else if (!given.is_none()) {
            const RowArray from(given);
            require(from.column.row >= 4 * in.sums(), "relive._ring._native.read_fields: no checksums are kept");
            in.kept.back() = from.column;
            sizes.back().push_back(from.rows);
        }
    }
    const Wanted wanted{which.data, rows.data, targets.data, n};
    check_rows(in, sizes, wanted, plans, to);
    std::pair<std::int64_t, std::int64_t> bad;
    run(WORTH_RELEASING, [&] { bad = read_fields(in, wanted, plans, to); });
    return nb::make_tuple(bad.first, bad.second);
}

nb::object sort_rows_of(In<std::int64_t> before, In<std::int64_t> samples) {
    const npy_intp n = samples.size;
    require(before.size >= 2, "relive._ring._native.sort_rows: no files");
    for (npy_intp i = 0; i < n; ++i)
        if (samples.data[i] < before.data[0] || samples.data[i] >= before.data[before.size - 1])
            throw nb::index_error("relive._ring._native.sort_rows: a sample of no file");
    Out<std::int64_t> order(n), which(n), rows(n);
    const std::vector<std::int64_t> found =
        sort_rows(before.data, before.size - 1, samples.data, n, order.data, which.data, rows.data);
    return nb::make_tuple(order.array, listed_of(found), which.array, rows.array);
}

}  // namespace
}  // namespace relive

void bind_files(nanobind::module_& m) {
    m.def("checksums", &relive::checksums_of, nanobind::arg("rows"));
    m.def("copy_steps", &relive::copy_both, nanobind::arg("now"), nanobind::arg("later"), nanobind::arg("out"));
    m.def("keep_arrays", &relive::keep_arrays, nanobind::arg("arrays"), nanobind::arg("places"), nanobind::arg("head"),
          nanobind::arg("facts"));
    m.def("put_rows", &relive::put_rows, nanobind::arg("outs"), nanobind::arg("which"), nanobind::arg("values"));
    m.def("copy_ranges", &relive::copy_ranges_of, nanobind::arg("columns"), nanobind::arg("lanes"),
          nanobind::arg("block"), nanobind::arg("ranges"), nanobind::arg("outs"));
    m.def("set_ranges", &relive::set_ranges_of, nanobind::arg("columns"), nanobind::arg("lanes"),
          nanobind::arg("block"), nanobind::arg("ranges"), nanobind::arg("values"));
    m.def("read_rows", &relive::read_rows_of, nanobind::arg("files"), nanobind::arg("offsets"), nanobind::arg("places"),
          nanobind::arg("out"));
    m.def("read_spans", &relive::read_spans_of, nanobind::arg("files"), nanobind::arg("offsets"),
          nanobind::arg("sizes"), nanobind::arg("places"), nanobind::arg("out"));
    m.def("read_fields", &relive::read_fields_of, nanobind::arg("files"), nanobind::arg("kept"), nanobind::arg("which"),
          nanobind::arg("rows"), nanobind::arg("targets"), nanobind::arg("fields"), nanobind::arg("outs"));
    m.def("sort_rows", &relive::sort_rows_of, nanobind::arg("before"), nanobind::arg("samples"));
}
