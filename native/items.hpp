// The fields of a batch in one block of memory, whose arrays are made when they are looked at.
#pragma once

#include <memory>
#include <vector>

#include "numpy_api.hpp"

namespace relive {

// Where the fields of a batch of any size are, and under which names.
class Layout {
public:
    static constexpr npy_intp LINE = 64;  // on which every field begins

    struct Field {
        nb::tuple keys;  // that lead to it in the batch
        nb::object dtype;
        std::vector<npy_intp> shape;  // of one item
        npy_intp row;                 // bytes of one item
        bool turned = false;          // the first axis of an item is shown as its last one
    };
    struct Name {
        nb::object text;
        std::vector<size_t> fields;
    };

    // A field behind the others; returns its number.
    size_t add(nb::tuple keys, nb::object dtype, std::vector<npy_intp> shape, bool turned = false);
    size_t add(const char* name, int type);

    const std::vector<Field>& fields() const { return fields_; }
    const std::vector<Name>& names() const { return names_; }

    // Bytes of `n` items in the fields from `first` on.
    npy_intp bytes(npy_intp n, size_t first) const;
    static npy_intp lines(npy_intp bytes) { return (bytes + LINE - 1) / LINE * LINE; }

private:
    std::vector<Field> fields_;
    std::vector<Name> names_;
};

// The fields of `n` items, as a mapping that a `Batch` reads.
class Items {
public:
    // `apart`: a list of arrays for the first fields, which then are not in the block; None: all are in it.
    static nb::object make(const std::shared_ptr<const Layout>& layout, npy_intp n, nb::handle apart);
    // Where a field's values go.
    static char* data(nb::handle items, size_t field);
};

}  // namespace relive
