// Objects that Python calls without a frame, and the mapping of a batch's fields.
#include <atomic>

#include "callable.hpp"
#include "items.hpp"

// Behind Python.h, which it does not include.
#include <structmember.h>

namespace relive {
namespace {

struct Callable {
    PyObject_HEAD vectorcallfunc vectorcall;
    Call* call;
    PyObject* attributes;
};

Callable& callable_of(PyObject* self) { return *reinterpret_cast<Callable*>(self); }

// Run what may throw; null with an exception where it does.
template <typename Work>
PyObject* guarded(Work&& work) {
    try {
        return work();
    } catch (nb::python_error& error) {
        error.restore();
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
    }
    return nullptr;
}

PyObject* call(PyObject* self, PyObject* const* arguments, size_t flags, PyObject* names) {
    return guarded([&] { return (*callable_of(self).call)(arguments, PyVectorcall_NARGS(flags), names); });
}

int traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(callable_of(self).attributes);
    return callable_of(self).call ? callable_of(self).call->traverse(visit, arg) : 0;
}

int clear(PyObject* self) {
    Py_CLEAR(callable_of(self).attributes);
    return 0;
}

void destroy(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(callable_of(self).attributes);
    delete callable_of(self).call;
    type->tp_free(self);
    Py_DECREF(type);
}

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Callable, vectorcall), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(Callable, attributes), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot callable_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_members, members},
    {0, nullptr},
};

PyType_Spec callable_spec = {"relive._ring._native.Call", sizeof(Callable), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, callable_slots};

PyTypeObject* callable_type = nullptr;

// The mapping: `arrays` has one entry for each field, null until it is looked at.
struct Mapping {
    PyObject_VAR_HEAD std::shared_ptr<const Layout> layout;
    PyObject *block, *apart;  // the memory of the fields: of the first ones a list of arrays, of the others one array
    npy_intp n;
    size_t first;  // field of the block
    PyObject* arrays[1];
};

Mapping& mapping_of(PyObject* self) { return *reinterpret_cast<Mapping*>(self); }

// What a field's values are kept in, and where.
PyObject* memory_of(const Mapping& items, size_t field) {
    return field < items.first ? PyList_GET_ITEM(items.apart, Py_ssize_t(field)) : items.block;
}

char* data_of(const Mapping& items, size_t field) {
    if (field < items.first) return PyArray_BYTES(array(memory_of(items, field)));
    auto begin = reinterpret_cast<uintptr_t>(PyArray_DATA(array(items.block)));
    begin = (begin + Layout::LINE - 1) / Layout::LINE * Layout::LINE;
    for (size_t f = items.first; f < field; ++f)
        begin += uintptr_t(Layout::lines(items.n * items.layout->fields()[f].row));
    return reinterpret_cast<char*>(begin);
}

nb::object array_of(Mapping& items, size_t field) {
    const std::atomic_ref<PyObject*> known(items.arrays[field]);
    if (!known.load(std::memory_order_acquire)) {
        const Layout::Field& of = items.layout->fields()[field];
        npy_intp shape[NPY_MAXDIMS];
        shape[0] = items.n;
        std::copy(of.shape.begin(), of.shape.end(), shape + 1);
        auto* dtype = reinterpret_cast<PyArray_Descr*>(nb::handle(of.dtype).inc_ref().ptr());
        const int axes = int(of.shape.size()) + 1;
        nb::object made = nb::steal(PyArray_NewFromDescr(&PyArray_Type, dtype, axes, shape, nullptr,
                                                         data_of(items, field), NPY_ARRAY_CARRAY, nullptr));
        if (!made.is_valid() ||
            PyArray_SetBaseObject(array(made), nb::handle(memory_of(items, field)).inc_ref().ptr()) < 0)
            nb::raise_python_error();
        if (of.turned) {
            npy_intp order[NPY_MAXDIMS] = {0};
            for (int axis = 1; axis < axes; ++axis) order[axis] = axis + 1 < axes ? axis + 1 : 1;
            PyArray_Dims permuted{order, axes};
            made = nb::steal(PyArray_Transpose(array(made), &permuted));
            if (!made.is_valid()) nb::raise_python_error();
        }
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
    Py_XDECREF(items.block);
    Py_XDECREF(items.apart);
    items.layout.~shared_ptr();
    type->tp_free(self);
    Py_DECREF(type);
}

PyMethodDef methods[] = {{"keys", keys, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};

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

}  // namespace

nb::object callable(std::unique_ptr<Call> call_of) {
    nb::object made = nb::steal(callable_type->tp_alloc(callable_type, 0));
    if (!made.is_valid()) nb::raise_python_error();
    callable_of(made.ptr()).vectorcall = call;
    callable_of(made.ptr()).call = call_of.release();
    return made;
}

size_t Layout::add(nb::tuple keys, nb::object dtype, std::vector<npy_intp> shape, bool turned) {
    require(keys.size() > 0 && shape.size() < NPY_MAXDIMS, "relive._ring._native: a field without a name");
    auto* of = reinterpret_cast<PyArray_Descr*>(dtype.ptr());
    npy_intp row = PyDataType_ELSIZE(of);
    // That of a record's field is an object of its own; NumPy's one is recognised sooner.
    if (of->type_num < NPY_NTYPES_LEGACY && dtype.attr("metadata").is_none())
        dtype = nb::steal(reinterpret_cast<PyObject*>(PyArray_DescrFromType(of->type_num)));
    for (const npy_intp size : shape) row *= size;
    const size_t field = fields_.size();
    auto name = names_.begin();
    while (name != names_.end() && !name->text.equal(keys[0])) ++name;
    if (name == names_.end()) name = names_.insert(name, {keys[0], {}});
    name->fields.push_back(field);
    fields_.push_back({std::move(keys), std::move(dtype), std::move(shape), row, turned});
    return field;
}

size_t Layout::add(const char* name, int type) {
    const nb::object text = nb::steal(PyUnicode_InternFromString(name));
    return add(nb::make_tuple(text), nb::steal(reinterpret_cast<PyObject*>(PyArray_DescrFromType(type))), {});
}

npy_intp Layout::bytes(npy_intp n, size_t first) const {
    npy_intp sum = 0;
    for (size_t f = first; f < fields_.size(); ++f) {
        if (n > (NPY_MAX_INTP / 4 - sum) / std::max<npy_intp>(fields_[f].row, 1)) throw std::bad_alloc();
        sum += lines(n * fields_[f].row);
    }
    return sum;
}

nb::object Items::make(const std::shared_ptr<const Layout>& layout, npy_intp n, nb::handle apart) {
    const size_t first = apart.is_none() ? 0 : nb::len(apart);
    require(first <= layout->fields().size(), "relive._ring._native.sampling: more arrays than fields");
    nb::list kept;  // which nobody else can change
    for (size_t f = 0; f < first; ++f) {
        const nb::object given = apart[f];
        require(PyArray_Check(given.ptr()) && PyArray_ISCARRAY(array(given)) &&
                    PyArray_NBYTES(array(given)) == n * layout->fields()[f].row,
                "relive._ring._native.sampling: an array of another size");
        kept.append(given);
    }
    npy_intp bytes[1] = {layout->bytes(n, first) + Layout::LINE};
    nb::object block = nb::steal(PyArray_SimpleNew(1, bytes, NPY_UINT8));
    if (!block.is_valid()) nb::raise_python_error();
    nb::object made = nb::steal(mapping_type->tp_alloc(mapping_type, Py_ssize_t(layout->fields().size())));
    if (!made.is_valid()) nb::raise_python_error();
    Mapping& items = mapping_of(made.ptr());
    new (&items.layout) std::shared_ptr<const Layout>(layout);
    items.block = block.release().ptr();
    items.apart = kept.release().ptr();
    items.n = n;
    items.first = first;
    for (size_t f = 0; f < first; ++f)
        if (!layout->fields()[f].turned)
            items.arrays[f] = nb::handle(PyList_GET_ITEM(items.apart, Py_ssize_t(f))).inc_ref().ptr();
    return made;
}

char* Items::data(nb::handle items, size_t field) { return data_of(mapping_of(items.ptr()), field); }

}  // namespace relive

void bind_callable(nanobind::module_& m) {
    using namespace relive;
    callable_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&callable_spec));
    mapping_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&mapping_spec));
    if (!callable_type || !mapping_type) nb::raise_python_error();
    m.attr("_types") = nb::make_tuple(nb::handle(reinterpret_cast<PyObject*>(callable_type)),
                                      nb::handle(reinterpret_cast<PyObject*>(mapping_type)));
}
