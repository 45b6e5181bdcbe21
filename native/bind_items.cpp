// The mapping of a batch's fields.
#include <atomic>

#include "callable.hpp"
#include "items.hpp"

namespace relive {
namespace {

// The mapping: `arrays` has one entry for each field; null where it is worked out, or cut out, when it is looked at.
struct Mapping {
    PyObject_VAR_HEAD std::shared_ptr<const Layout> layout;
    npy_intp n;
    PyObject* arrays[1];
};

Mapping& mapping_of(PyObject* self) { return *reinterpret_cast<Mapping*>(self); }

// An array of a field's values at `data`, which `owner` keeps; null: in memory of its own.
nb::object array_at(const Layout::Field& field, npy_intp n, char* data, nb::object owner) {
    npy_intp shape[NPY_MAXDIMS];
    std::copy_n(field.shape.begin(), field.axis, shape);
    shape[field.axis] = n;
    std::copy(field.shape.begin() + field.axis, field.shape.end(), shape + field.axis + 1);
    auto* dtype = reinterpret_cast<PyArray_Descr*>(nb::handle(field.dtype).inc_ref().ptr());
    nb::object made = nb::steal(PyArray_NewFromDescr(&PyArray_Type, dtype, int(field.shape.size()) + 1, shape, nullptr,
                                                     data, data ? NPY_ARRAY_CARRAY : 0, nullptr));
    if (!made.is_valid() || (data && PyArray_SetBaseObject(array(made), owner.release().ptr()) < 0))
        nb::raise_python_error();
    if (field.frozen) PyArray_CLEARFLAGS(array(made), NPY_ARRAY_WRITEABLE);
    return made;
}

nb::object array_of(Mapping& items, size_t field);

nb::object made_now(Mapping& items, size_t number) {
    const Layout::Field& field = items.layout->fields()[number];
    if (field.later) {
        nb::object made = array_at(field, items.n, nullptr, {});
        field.later->work_out(reinterpret_cast<PyObject*>(&items), items.n, PyArray_BYTES(array(made)));
        return made;
    }
    nb::object whole = array_of(items, field.whole);
    if (field.turned) {
        npy_intp order[NPY_MAXDIMS] = {0};
        const int axes = PyArray_NDIM(array(whole));
        for (int axis = 1; axis < axes; ++axis) order[axis] = axis + 1 < axes ? axis + 1 : 1;
        PyArray_Dims axes_of{order, axes};
        return nb::steal(PyArray_Transpose(array(whole), &axes_of));
    }
    if (field.part.is_none()) return whole;
    return nb::steal(PyObject_GetItem(whole.ptr(), field.part.ptr()));
}

nb::object array_of(Mapping& items, size_t field) {
    const std::atomic_ref<PyObject*> known(items.arrays[field]);
    if (!known.load(std::memory_order_acquire)) {
        nb::object made = made_now(items, field);
        if (!made.is_valid()) nb::raise_python_error();
        PyObject* none = nullptr;  // where another thread was faster all have what it made
        if (known.compare_exchange_strong(none, made.ptr(), std::memory_order_acq_rel)) made.release();
    }
    return nb::borrow(known.load(std::memory_order_acquire));
}

// What the batch has under a name: an array, or a dict where it is nested.
nb::object value_of(Mapping& items, const Layout::Name& name) {
    const auto& fields = items.layout->fields();
    if (fields[name.fields[0]].keys.size() == 1) return array_of(items, name.fields[0]);
    nb::dict nest;
    for (const size_t field : name.fields) {
        nb::dict node = nest;
        const nb::tuple& keys = fields[field].keys;
        for (size_t depth = 1; depth + 1 < keys.size(); ++depth) {
            if (!node.contains(keys[depth])) node[keys[depth]] = nb::dict();
            node = nb::borrow<nb::dict>(node[keys[depth]]);
        }
        node[keys[keys.size() - 1]] = array_of(items, field);
    }
    return nest;
}

const Layout::Name* name_of(const Mapping& items, PyObject* key) {
    for (const Layout::Name& name : items.layout->names())
        if (name.text.ptr() == key) return &name;
    if (PyUnicode_Check(key))
        for (const Layout::Name& name : items.layout->names())
            if (PyUnicode_Compare(name.text.ptr(), key) == 0) return &name;
    return nullptr;
}

PyObject* subscript(PyObject* self, PyObject* key) {
    return guarded([&]() -> PyObject* {
        const Layout::Name* name = name_of(mapping_of(self), key);
        if (!name) return PyErr_SetObject(PyExc_KeyError, key), nullptr;
        return value_of(mapping_of(self), *name).release().ptr();
    });
}

int contains(PyObject* self, PyObject* key) { return name_of(mapping_of(self), key) != nullptr; }

Py_ssize_t length(PyObject* self) { return Py_ssize_t(mapping_of(self).layout->names().size()); }

PyObject* keys(PyObject* self, PyObject*) {
    return guarded([&] {
        nb::list texts;
        for (const Layout::Name& name : mapping_of(self).layout->names()) texts.append(name.text);
        return texts.release().ptr();
    });
}

PyObject* iterate(PyObject* self) {
    const nb::object texts = nb::steal(keys(self, nullptr));
    return texts.is_valid() ? PyObject_GetIter(texts.ptr()) : nullptr;
}

void drop(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    Mapping& items = mapping_of(self);
    for (Py_ssize_t f = 0; f < Py_SIZE(self); ++f) Py_XDECREF(items.arrays[f]);
    items.layout.~shared_ptr();
    PyObject_Free(self);
    Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"keys", keys, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot mapping_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(drop)},
    {Py_tp_iter, reinterpret_cast<void*>(iterate)},
    {Py_tp_methods, methods},
    {Py_mp_subscript, reinterpret_cast<void*>(subscript)},
    {Py_mp_length, reinterpret_cast<void*>(length)},
    {Py_sq_contains, reinterpret_cast<void*>(contains)},
    {0, nullptr},
};

PyType_Spec mapping_spec = {"relive._ring._native.Items", int(offsetof(Mapping, arrays)), int(sizeof(PyObject*)),
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, mapping_slots};

PyTypeObject* mapping_type = nullptr;

nb::tuple keys_of(const char* name) { return nb::make_tuple(nb::steal(PyUnicode_InternFromString(name))); }

}  // namespace

bool Layout::Field::like(const Field& other) const {
    if (later || other.later || axis || other.axis || shape != other.shape || !keys.equal(other.keys)) return false;
    if (dtype.is_valid() && other.dtype.is_valid()) return dtype.equal(other.dtype);
    return part.is_none() && other.part.is_none() && whole == other.whole && turned == other.turned;
}

size_t Layout::put(Field field) {
    require(field.shape.size() < NPY_MAXDIMS && size_t(field.axis) <= field.shape.size(),
            "relive._ring._native: a field with too many axes");
    const size_t number = fields_.size();
    if (field.keys.size()) {
        auto name = names_.begin();
        while (name != names_.end() && !name->text.equal(field.keys[0])) ++name;
        if (name == names_.end()) name = names_.insert(name, {field.keys[0], {}});
        name->fields.push_back(number);
    }
    fields_.push_back(std::move(field));
    return number;
}

size_t Layout::add(nb::tuple keys, nb::object dtype, std::vector<npy_intp> shape, int axis) {
    auto* of = reinterpret_cast<PyArray_Descr*>(dtype.ptr());
    npy_intp row = PyDataType_ELSIZE(of);
    // That of a record's field is an object of its own; NumPy's one is recognised sooner.
    if (of->type_num < NPY_NTYPES_LEGACY && !PyTypeNum_ISFLEXIBLE(of->type_num) && dtype.attr("metadata").is_none())
        dtype = nb::steal(reinterpret_cast<PyObject*>(PyArray_DescrFromType(of->type_num)));
    for (const npy_intp size : shape) row *= size;
    return put({std::move(keys), std::move(dtype), std::move(shape), row, axis});
}

size_t Layout::add(const char* name, int type, std::vector<npy_intp> shape) {
    return add(keys_of(name), nb::steal(reinterpret_cast<PyObject*>(PyArray_DescrFromType(type))), std::move(shape));
}

void Layout::add_part(nb::tuple keys, size_t whole, nb::object part, bool turned) {
    put({std::move(keys), {}, {}, 0, 0, whole, std::move(part), turned});
}

void Layout::add_later(const char* name, int type, std::vector<npy_intp> shape, int axis,
                       std::shared_ptr<const Later> by) {
    nb::object dtype = nb::steal(reinterpret_cast<PyObject*>(PyArray_DescrFromType(type)));
    put({keys_of(name), std::move(dtype), std::move(shape), 0, axis, 0, {}, false, false, std::move(by)});
}

void Layout::end() {
    constexpr size_t BATCHES = 4;  // whose blocks are kept: a learner may hold some and drop them together
    blocks_ = std::make_shared<Blocks>(BATCHES * fields_.size());
    for (const Name& name : names_)
        if (const Field& field = fields_[name.fields[0]]; field.keys.size() == 1 && !field.later)
            attributes_[name.text] = nb::none();
}

npy_intp Layout::bytes(npy_intp n) const {
    npy_intp sum = 0;
    for (const Field& field : fields_) {
        if (n > (NPY_MAX_INTP / 4 - sum) / std::max<npy_intp>(field.row, 1)) throw std::bad_alloc();
        sum += n * field.row;
    }
    return sum;
}

nb::object Items::make(const std::shared_ptr<const Layout>& layout, npy_intp n) {
    // The C library hands out memory that it has used before; of more than FEW it may give back what is free at the end
    // of its heap, and a fresh page costs ten times the copy into it. So the large arrays of such a batch are lent.
    constexpr npy_intp FEW = 64 << 10, LARGE = 16 << 10;
    const auto& fields = layout->fields();
    const bool lends = layout->bytes(n) > FEW;
    layout->blocks().next_draw();
    nb::object made = nb::steal(PyType_GenericAlloc(mapping_type, Py_ssize_t(fields.size())));
    if (!made.is_valid()) nb::raise_python_error();
    Mapping& items = mapping_of(made.ptr());
    new (&items.layout) std::shared_ptr<const Layout>(layout);
    items.n = n;
    for (size_t f = 0; f < fields.size(); ++f) {
        if (fields[f].later || fields[f].part.is_valid()) continue;
        char* data = nullptr;
        nb::object owner;
        if (lends && n * fields[f].row >= LARGE) owner = layout->blocks().lend(size_t(n * fields[f].row), data);
        items.arrays[f] = array_at(fields[f], n, data, std::move(owner)).release().ptr();
    }
    return made;
}

nb::dict Items::attributes(nb::handle items) {
    Mapping& of = mapping_of(items.ptr());
    nb::object found = nb::steal(PyDict_Copy(of.layout->attributes().ptr()));
    if (!found.is_valid()) nb::raise_python_error();
    for (const Layout::Name& name : of.layout->names()) {
        const Layout::Field& field = of.layout->fields()[name.fields[0]];
        if (field.keys.size() == 1 && !field.later &&
            PyDict_SetItem(found.ptr(), name.text.ptr(), array_of(of, name.fields[0]).ptr()))
            nb::raise_python_error();
    }
    return nb::borrow<nb::dict>(found);
}

nb::dict Items::fields(nb::handle items) {
    Mapping& of = mapping_of(items.ptr());
    nb::dict found;
    for (const Layout::Name& name : of.layout->names()) found[name.text] = value_of(of, name);
    return found;
}

nb::object Items::joined(const nb::list& parts) {
    npy_intp n = 0;
    for (const nb::handle part : parts) {
        if (Py_TYPE(part.ptr()) != mapping_type) return nb::none();
        const auto &fields = mapping_of(part.ptr()).layout->fields(),
                   &first = mapping_of(parts[0].ptr()).layout->fields();
        if (!std::equal(first.begin(), first.end(), fields.begin(), fields.end(),
                        [](const auto& one, const auto& other) { return one.like(other); }))
            return nb::none();
        n += mapping_of(part.ptr()).n;
    }
    if (!n) return nb::none();
    const std::shared_ptr<const Layout> layout = mapping_of(parts[0].ptr()).layout;
    nb::object made = make(layout, n);
    for (size_t f = 0; f < layout->fields().size(); ++f) {
        char* to = data(made, f);
        for (const nb::handle part : parts) {
            const size_t bytes = size_t(mapping_of(part.ptr()).n * layout->fields()[f].row);
            if (bytes) std::memcpy(to, data(part, f), bytes);
            to += bytes;
        }
    }
    return fields(made);
}

char* Items::data(nb::handle items, size_t field) {
    PyObject* const made = mapping_of(items.ptr()).arrays[field];
    return made ? static_cast<char*>(PyArray_DATA(array(made))) : nullptr;
}

}  // namespace relive

void bind_items(nanobind::module_& m) {
    using namespace relive;
    mapping_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&mapping_spec));
    if (!mapping_type) nb::raise_python_error();
    m.def("joined", [](const nb::list& parts) { return Items::joined(parts); }, nb::arg("parts"));
    m.attr("_items_types") = nb::make_tuple(nb::handle(reinterpret_cast<PyObject*>(mapping_type)));
}
