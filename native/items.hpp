// The fields of a batch: an array each, so that to keep one keeps no other.
#pragma once

#include <memory>
#include <vector>

#include "blocks.hpp"
#include "numpy_api.hpp"

namespace relive {

// Works out a field when it is first looked at.
class Later {
public:
    virtual ~Later() = default;
    // Write the field of `n` items to `to`, by what is in the memory of `items`.
    virtual void work_out(nb::handle items, npy_intp n, char* to) const = 0;
};

// Where the fields of a batch of any size are, and under which names.
class Layout {
public:
    struct Field {
        nb::tuple keys;  // that lead to it in the batch; none: only other fields show what is in it
        nb::object dtype;
        std::vector<npy_intp> shape;  // of one item
        npy_intp row;                 // bytes of one item in the batch's memory
        int axis = 0;                 // of the items
        size_t whole = 0;             // the field that this one is a part of, where there is a
        nb::object part;              // index of it; None: all of it
        bool turned = false;          // with the first axis of an item as its last one
        bool frozen = false;          // read-only, since several fields show it
        std::shared_ptr<const Later> later;

        // Whether the values of another field can be copied behind this one's.
        bool like(const Field& other) const;
    };
    struct Name {
        nb::object text;
        std::vector<size_t> fields;
    };

    // A field behind the others; returns its number.
    size_t add(nb::tuple keys, nb::object dtype, std::vector<npy_intp> shape, int axis = 0);
    size_t add(const char* name, int type, std::vector<npy_intp> shape = {});
    void add_part(nb::tuple keys, size_t whole, nb::object part, bool turned = false);
    // Let no caller write to a field, nor to what is a part of it.
    void freeze(size_t field) { fields_[field].frozen = true; }
    void add_later(const char* name, int type, std::vector<npy_intp> shape, int axis, std::shared_ptr<const Later> by);

    // There are no more fields.
    void end();

    const std::vector<Field>& fields() const { return fields_; }
    const std::vector<Name>& names() const { return names_; }
    // What a batch has as attributes: under each name nothing yet. A copy of it takes less than a dict that grows.
    const nb::dict& attributes() const { return attributes_; }
    Blocks& blocks() const { return *blocks_; }

    // Bytes of `n` items.
    npy_intp bytes(npy_intp n) const;

private:
    std::vector<Field> fields_;
    std::vector<Name> names_;
    nb::dict attributes_;
    std::shared_ptr<Blocks> blocks_;

    size_t put(Field field);
};

// The fields of `n` items, as a mapping that a `Batch` reads.
class Items {
public:
    static nb::object make(const std::shared_ptr<const Layout>& layout, npy_intp n);
    // The fields that are no nests and have not to be worked out, as a batch has them as attributes: a learner reads
    // most of them, and behind its step each would cost much more to make at its first look.
    static nb::dict attributes(nb::handle items);
    // All fields, as a dict.
    static nb::dict fields(nb::handle items);
    // A dict of the items of several mappings, one after the other; None where their fields differ, or need more than a
    // copy.
    static nb::object joined(const nb::list& parts);
    // Where a field's values are; null where it is a part of another one, or worked out later.
    static char* data(nb::handle items, size_t field);
};

}  // namespace relive
