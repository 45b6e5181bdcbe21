// PyTorch's tensors on the CPU, through DLPack: `tensor.numpy()` costs as much as a whole `add`.
#pragma once

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

    bool is(PyObject* object) { return Py_TYPE(object) == type_ || (!type_ && discover(object)); }

    // A new reference to a capsule; null, with or without an exception, where the tensor cannot be taken this way.
    PyObject* exported(PyObject* tensor) const {
        return answers_no(tensor, requires_grad_, false) && answers_no(tensor, is_neg_, true)
                   ? PyObject_CallOneArg(to_dlpack_, tensor)
                   : nullptr;
    }

    // A new reference to the tensor without its gradient, and to anything else as it is; null with an exception.
    PyObject* detached(PyObject* object) {
        if (!is(object) || answers_no(object, requires_grad_, false)) return Py_NewRef(object);
        return PyObject_CallMethodNoArgs(object, detach_);
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
    PyTypeObject* type_ = nullptr;  // once one was seen; it and these live as long as the process
    PyObject *to_dlpack_ = nullptr, *requires_grad_ = nullptr, *is_neg_ = nullptr, *detach_ = nullptr;

    bool discover(PyObject* object) {
        if (std::strcmp(Py_TYPE(object)->tp_name, "Tensor") != 0) return false;
        PyObject* module = PyImport_ImportModule("torch");
        PyObject* type = module ? PyObject_GetAttrString(module, "Tensor") : nullptr;
        PyObject* utils = module ? PyImport_ImportModule("torch.utils.dlpack") : nullptr;
        PyObject* function = utils ? PyObject_GetAttrString(utils, "to_dlpack") : nullptr;
        if (!requires_grad_) requires_grad_ = PyUnicode_InternFromString("requires_grad");
        if (!is_neg_) is_neg_ = PyUnicode_InternFromString("is_neg");
        if (!detach_) detach_ = PyUnicode_InternFromString("detach");
        const bool found = function && requires_grad_ && is_neg_ && detach_ &&
                           reinterpret_cast<PyTypeObject*>(type) == Py_TYPE(object);
        if (found) {
            to_dlpack_ = Py_NewRef(function);
            type_ = reinterpret_cast<PyTypeObject*>(Py_NewRef(type));
        }
        for (PyObject* part : {module, type, utils, function}) Py_XDECREF(part);
        PyErr_Clear();
        return found;
    }

    static bool answers_no(PyObject* tensor, PyObject* name, bool method) {
        PyObject* answer = method ? PyObject_CallMethodNoArgs(tensor, name) : PyObject_GetAttr(tensor, name);
        Py_XDECREF(answer);
        return answer == Py_False;
    }
};

}  // namespace relive
