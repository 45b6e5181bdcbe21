// PyTorch's tensors on the CPU, through DLPack: `tensor.numpy()` costs as much as a whole `add`.
#pragma once

#include <atomic>
#include <cstdint>

#include "numbers.hpp"
#include "numpy_api.hpp"

namespace relive {

// The structures of DLPack that a capsule called "dltensor" holds; https://dmlc.github.io/dlpack.
struct DLTensor {
    void* data;
    int32_t device, device_id;
    int32_t axes;
    uint8_t code, bits;
    uint16_t vector;
    int64_t *lengths, *steps;  // in elements; no steps: contiguous
    uint64_t offset;
};

class Tensors {
public:
    static Tensors& known() {
        static Tensors tensors;
        return tensors;
    }

    bool is(PyObject* object) {
        const Torch* torch = torch_.load(std::memory_order_acquire);
        return torch ? Py_TYPE(object) == torch->type : discover(object);
    }

    // A new reference to a capsule; null, with or without an exception, where the tensor cannot be taken this way.
    PyObject* exported(PyObject* tensor) const {
        const Torch& torch = *torch_.load(std::memory_order_acquire);
        return answers_no(tensor, torch.requires_grad, false) && answers_no(tensor, torch.is_neg, true)
                   ? PyObject_Vectorcall(torch.to_dlpack, &tensor, 1, nullptr)
                   : nullptr;
    }

    // A new reference to the tensor without its gradient, and to anything else as it is; null with an exception.
    PyObject* detached(PyObject* object) {
        if (!is(object)) return Py_NewRef(object);
        const Torch& torch = *torch_.load(std::memory_order_acquire);
        return answers_no(object, torch.requires_grad, false) ? Py_NewRef(object) : method(object, torch.detach);
    }

    // Null where its memory is not the processor's.
    static const DLTensor* look(PyObject* capsule) {
        auto* found = static_cast<const DLTensor*>(PyCapsule_GetPointer(capsule, "dltensor"));
        constexpr int32_t CPU = 1;
        return found && found->device == CPU && found->vector == 1 ? found : nullptr;
    }

    static Number number_of(const DLTensor& tensor) {
        if (tensor.code == 4 && tensor.bits == 16) return Number::BF16;
        const char kinds[] = {'i', 'u', 'f', 0, 0, 0, 'b'};  // a complex one may have to be conjugated
        return tensor.code < sizeof(kinds) && kinds[tensor.code]
                   ? relive::number_of(kinds[tensor.code], tensor.bits / 8)
                   : Number::NONE;
    }

private:
    struct Torch {
        PyTypeObject* type;
        PyObject *to_dlpack, *requires_grad, *is_neg, *detach;
    };
    std::atomic<const Torch*> torch_{nullptr};  // once a tensor was seen; it lives as long as the process

    bool discover(PyObject* object) {
        const nb::object name = nb::steal(PyType_GetName(Py_TYPE(object)));
        if (!name.is_valid() || PyUnicode_CompareWithASCIIString(name.ptr(), "Tensor") != 0)
            return PyErr_Clear(), false;
        PyObject* module = PyImport_ImportModule("torch");
        PyObject* type = module ? PyObject_GetAttrString(module, "Tensor") : nullptr;
        PyObject* utils = module ? PyImport_ImportModule("torch.utils.dlpack") : nullptr;
        PyObject* function = utils ? PyObject_GetAttrString(utils, "to_dlpack") : nullptr;
        PyObject* names[] = {PyUnicode_InternFromString("requires_grad"), PyUnicode_InternFromString("is_neg"),
                             PyUnicode_InternFromString("detach")};
        const bool found =
            function && names[0] && names[1] && names[2] && reinterpret_cast<PyTypeObject*>(type) == Py_TYPE(object);
        if (found) {
            // Another thread may be as far: what it found is the same.
            const Torch* none = nullptr;
            const auto* made = new Torch{Py_TYPE(object), function, names[0], names[1], names[2]};
            if (torch_.compare_exchange_strong(none, made, std::memory_order_acq_rel))
                for (PyObject* part : {type, function, names[0], names[1], names[2]}) Py_INCREF(part);
            else
                delete made;
        }
        for (PyObject* part : {module, type, utils, function, names[0], names[1], names[2]}) Py_XDECREF(part);
        PyErr_Clear();
        return found;
    }

    static PyObject* method(PyObject* tensor, PyObject* name) {
        return PyObject_VectorcallMethod(name, &tensor, 1, nullptr);
    }

    static bool answers_no(PyObject* tensor, PyObject* name, bool called) {
        PyObject* answer = called ? method(tensor, name) : PyObject_GetAttr(tensor, name);
        Py_XDECREF(answer);
        return answer == Py_False;
    }
};

}  // namespace relive
