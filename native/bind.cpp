// The Python module relive._ring._native. Every argument that could make a kernel read or write outside its arrays is
// checked in the binding files; what values mean is checked in Python.
#define RELIVE_IMPORTS_NUMPY
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "bind_ring.hpp"

void bind_add(nanobind::module_& m);
void bind_callable(nanobind::module_& m);
void bind_copying(nanobind::module_& m);
void bind_draw(nanobind::module_& m);
void bind_files(nanobind::module_& m);
void bind_gather(nanobind::module_& m);
void bind_items(nanobind::module_& m);
void bind_ring(nanobind::module_& m);
void bind_samplers(nanobind::module_& m);

namespace relive {
namespace {

// The builds that this module has and this processor can run, best first.
std::vector<const Kernels*> runnable() {
    std::vector<const Kernels*> found;
#if defined(RELIVE_WITH_AVX512)
    if (__builtin_cpu_supports("x86-64-v4")) found.push_back(&avx512::table);
#endif
#if defined(RELIVE_WITH_AVX2)
    if (__builtin_cpu_supports("x86-64-v3")) found.push_back(&avx2::table);
#endif
    found.push_back(&baseline::table);
    return found;
}

// The best build, or the one that RELIVE_SIMD names.
const Kernels* choose() {
    const std::vector<const Kernels*> found = runnable();
    const char* wanted = std::getenv("RELIVE_SIMD");
    if (!wanted || !*wanted) return found.front();
    std::string names;
    for (const Kernels* kernels : found) {
        if (std::strcmp(kernels->name, wanted) == 0) return kernels;
        names += (names.empty() ? "`" : ", `") + std::string(kernels->name) + "`";
    }
    const std::string text = "Expected one of " + names + ", got `" + wanted + "` - at `RELIVE_SIMD`";
    PyErr_SetString(PyExc_ValueError, text.c_str());
    nb::raise_python_error();
}

const Kernels* kernels = nullptr;
Plans named;

int import_numpy() {
    import_array1(-1);
    return 0;
}

// The classes live as long as the module: it holds a reference to each of them.
Plans find_plans(nb::module_& m) {
    const nb::module_ module = nb::module_::import_("relive._ring.plans");
    m.attr("_plans") = module;
    const auto type = [&](const char* name) { return reinterpret_cast<PyTypeObject*>(module.attr(name).ptr()); };
    return {type("Windowed"), type("Expanded"),   type("Unrolled"),      type("Sequenced"), type("Located"),
            type("Changes"),  type("Drawn"),      type("SampledLeaves"), type("Mass"),      type("RowsRead"),
            type("Followed"), type("Relabelled"), type("Around")};
}

}  // namespace

const Kernels& chosen() { return *kernels; }
const Plans& plans() { return named; }

}  // namespace relive

NB_MODULE(_native, m) {
    nanobind::set_leak_warnings(false);  // what a daemon thread has at the end of the process stays for ever
    using namespace relive;
    if (import_numpy() < 0) nb::raise_python_error();
    kernels = choose();
    named = find_plans(m);
    m.doc() = "The kernels in C++; relive._ring.kernels_numpy has the same functions and describes them.";
    m.def("simd", [] { return kernels->name; });
    bind_callable(m);
    bind_items(m);
    bind_add(m);
    bind_copying(m);
    bind_samplers(m);
    bind_ring(m);
    bind_gather(m);
    bind_draw(m);
    bind_files(m);
    // nanobind ends the process where its table of objects cannot grow: it is made large enough for most programs here.
    std::vector<nb::object> objects(1000);
    for (nb::object& object : objects) object = m.attr("Lock")();
}
