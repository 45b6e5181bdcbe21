// Takes one call's values straight from the caller's arguments. Nothing is written before all of them are known to be
// legal; `_schema/step_parser.py` has the errors for those that are not.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "checks.hpp"
#include "elements.hpp"
#include "ring.hpp"
#include "values.hpp"

namespace relive {

// The arguments whose names do not depend on the schema, which has its extras behind them.
enum Name { OBS, ACTION, REWARD, NEXT_OBS, TERMINATED_FLAG, TRUNCATED_FLAG, ENV_IDS, PRIORITY, TIME_MAJOR, NAMES };

// A key that leads to a value inside a nested mapping.
struct Key {
    nb::object name;
    Py_ssize_t siblings;  // keys that the mapping must have; -1: that was seen when the first of them was taken
    Py_ssize_t position;  // in a tuple, as samples of a `Tuple` space are; -1: none
};

// Where one column's value is among the arguments.
struct Place {
    size_t name;
    std::vector<Key> keys;
};

// All of a call's arguments.
class Inputs {
public:
    Inputs() = default;
    Inputs(const Inputs&) = delete;
    Inputs& operator=(const Inputs&) = delete;

    // `layouts` say for every column: array, keys, shape of a value, and whether its frames are the first axis.
    void prepare(nb::list layouts, size_t num_obs) {
        for (const char* name :
             {"obs", "action", "reward", "next_obs", "terminated", "truncated", "env_ids", "priority", "time_major"})
            names_.push_back(interned(name));
        std::vector<std::vector<std::string>> paths;
        for (nb::handle layout : layouts) {
            paths.emplace_back();
            for (nb::handle key : layout.attr("keys")) paths.back().push_back(nb::cast<std::string>(key));
            require(!paths.back().empty(), "relive._ring._native.Ring: a column without a name");
        }
        columns_ = paths.size();
        for (size_t c = 0; c < columns_; ++c) add_column(layouts[c], paths, c, name_of(paths[c][0]));
        for (const Name flag : {TERMINATED_FLAG, TRUNCATED_FLAG}) {
            places_.push_back({flag, {}});
            values_.emplace_back(Number::FLAG, 1);
        }
        for (size_t c = 0; c < num_obs; ++c) add_column(layouts[c], paths, c, NEXT_OBS);
        for (size_t c = 0; c < columns_; ++c)
            if (places_[c].name == REWARD) reward_ = c;
        for (size_t c = 0; c < num_obs; ++c)
            if (values_[c].behind()) behind_.assign(num_obs, 0);
        pointers_.resize(values_.size());
        given_.resize(names_.size());
        for (size_t at = 0; at < names_.size(); ++at) numbers_of_names_[names_[at]] = at;
        mapping_ = nb::object(nb::module_::import_("collections.abc").attr("Mapping"));
        ordered_ = nb::object(nb::module_::import_("collections").attr("OrderedDict"));
    }

    size_t bytes_of(size_t column) const { return values_[column].row(); }

    // Keep hold of all arguments. False with an exception, or where one of them is not legal. This may run Python code:
    // `coerce` is called for values of types that only Python can read.
    bool acquire(PyObject* const* arguments, PyObject* names, bool several, int64_t lanes, PyObject* coerce) {
        asked_ = false;
        if (!place(arguments, names, several) || !take_lanes(lanes)) return false;
        has_next_ = given_[NEXT_OBS];
        lead_ = Lead{{npy_intp(n_), 1}, 1, n_ == 1, false};
        if (several && !take_lead()) return false;
        const size_t count = has_next_ ? values_.size() : columns_ + 2;
        for (size_t i = 0; i < count; ++i)
            if (!(several && i == reward_) && !take(i, coerce)) return false;
        return !given_[PRIORITY] || priority_.acquire(Py_NewRef(given_[PRIORITY])) == Value::YES;
    }

    bool gives_priority() const { return given_[PRIORITY]; }
    bool asked() const { return asked_; }
    const Lead& lead() const { return lead_; }
    bool flat() const { return lead_.axes == 2 && lead_.optional; }

    // Check and convert what was acquired. This runs no Python code.
    bool settle() {
        const size_t count = has_next_ ? values_.size() : columns_ + 2;
        if (!behind_.empty()) leave_behind();
        for (size_t i = 0; i < count; ++i) {
            if (!values_[i].settle(lead_)) return false;
            pointers_[i] = values_[i].pointer();
        }
        return !given_[PRIORITY] || settle_priority();
    }

    // What was settled last.
    Steps steps() const {
        return {pointers_.data(),
                has_next_ ? pointers_.data() + columns_ + 2 : nullptr,
                reinterpret_cast<const uint8_t*>(pointers_[columns_]),
                reinterpret_cast<const uint8_t*>(pointers_[columns_ + 1]),
                given_[PRIORITY] ? priorities_.data() : nullptr,
                given_[ENV_IDS] ? numbers_.data() : nullptr,
                n_,
                lead_.axes == 1 ? 1 : lead_.sizes[lead_.by_time ? 0 : 1],
                lead_.by_time,
                behind_.empty() ? nullptr : behind_.data()};
    }

    void release() {
        for (Value& value : values_) value.release();
        priority_.release();
        lanes_.release();
    }

private:
    std::vector<nb::object> names_;  // of the arguments
    std::vector<PyObject*> given_;   // what was given for each; null for None
    std::vector<size_t> order_;      // of the last call's arguments, as numbers of names
    nb::dict numbers_of_names_;      // a name's place in `names_`
    std::vector<Value> values_;  // columns, terminated, truncated, then the observation's columns again for next_obs
    std::vector<Place> places_;  // of each of them
    std::vector<const char*> pointers_;
    std::vector<uint8_t>
        behind_;  // of the observation's columns: left with frames behind; none where no field has them
    Value lanes_{Number::I64, sizeof(int64_t)}, priority_{Number::F64, sizeof(double)};
    std::vector<int64_t> numbers_, called_;
    std::vector<double> priorities_;
    nb::object ordered_, mapping_, known_mapping_;  // Python's classes, the second abstract, and a type that is one
    size_t columns_ = 0, reward_ = 0;
    int64_t n_ = 0, calls_ = 0;
    Lead lead_;
    bool has_next_ = false, asked_ = false;

    // Stacks that are the bytes of their column but for frames behind, the next one too, are left so.
    void leave_behind() {
        for (size_t c = 0; c < behind_.size(); ++c) {
            Value &now = values_[c], &next = values_[columns_ + 2 + c];
            behind_[c] = now.is_behind() && (!has_next_ || next.is_behind());
            now.as_given = next.as_given = behind_[c];
        }
    }

    // Sort the arguments by their names. Callers give them in some fixed order: each is looked for where the last call
    // had it.
    bool place(PyObject* const* arguments, PyObject* names, bool several) {
        std::fill(given_.begin(), given_.end(), nullptr);
        const Py_ssize_t count = names ? Py_SIZE(names) : 0;
        order_.resize(std::max(order_.size(), size_t(count)));
        for (Py_ssize_t i = 0; i < count; ++i) {
            size_t& at = order_[size_t(i)];
            if (!find_name(tuple_item(names, i), at) || (at == TIME_MAJOR && !several)) return false;
            given_[at] = arguments[i] == Py_None && at != TIME_MAJOR ? nullptr : arguments[i];
        }
        return true;
    }

    // `at` comes as a guess. A string that was put together is another object than the name that it equals.
    bool find_name(PyObject* name, size_t& at) const {
        if (names_[at].ptr() == name) return true;
        PyObject* found = PyDict_GetItemWithError(numbers_of_names_.ptr(), name);
        if (found) at = PyLong_AsSize_t(found);
        return found;
    }

    bool take(size_t i, PyObject* coerce) {
        PyObject* found = find(places_[i]);
        if (!found) return false;
        const Value::Taken taken = values_[i].acquire(found);
        if (taken != Value::ASK) return taken == Value::YES;
        asked_ = true;
        PyObject* made = PyObject_CallFunction(coerce, "nO(nn)ii", Py_ssize_t(i), found, lead_.sizes[0], lead_.sizes[1],
                                               lead_.axes, int(lead_.optional));
        return made && values_[i].accept(made, lead_.count());
    }

    // A new reference; null where there is nothing, or where a mapping is not exactly what the schema says.
    PyObject* find(const Place& place) {
        PyObject* value = given_[place.name];
        Py_XINCREF(value);
        for (const Key& key : place.keys) {
            if (!value) return nullptr;
            PyObject* child = child_of(value, key);
            Py_DECREF(value);
            value = child;
        }
        if (value == Py_None) Py_CLEAR(value);
        return value;
    }

    PyObject* child_of(PyObject* node, const Key& key) {
        if (PyDict_CheckExact(node) || Py_IS_TYPE(node, as_type(ordered_))) {
            if (key.siblings >= 0 && PyDict_Size(node) != key.siblings) return nullptr;
            return element_of(node, key.name.ptr());
        }
        if (PyTuple_Check(node) || PyList_Check(node)) {
            const bool there = key.position >= 0 && key.position < Py_SIZE(node);
            return there ? nb::borrow(Elements(node)[key.position]).release().ptr() : nullptr;
        }
        if (!is_mapping(node) || (key.siblings >= 0 && PyObject_Size(node) != key.siblings)) return nullptr;
        return PyObject_GetItem(node, key.name.ptr());
    }

    bool is_mapping(PyObject* node) {
        nb::handle type(reinterpret_cast<PyObject*>(Py_TYPE(node)));
        if (type.is(known_mapping_)) return true;
        const bool found = PyObject_IsInstance(node, mapping_.ptr()) == 1;
        if (found) known_mapping_ = nb::borrow(type);
        return found;
    }

    // Distinct lanes; None: all of them.
    bool take_lanes(int64_t lanes) {
        n_ = lanes;
        PyObject* given = given_[ENV_IDS];
        if (!given) return true;
        given = PyRange_Check(given) ? PySequence_List(given) : Py_NewRef(given);
        if (!given || lanes_.acquire(given) != Value::YES) return false;
        lanes_.look();
        if (lanes_.axes() != 1 || !is_integer(lanes_.given())) return false;
        n_ = lanes_.length(0);
        if (n_ > lanes || n_ == 0 || !lanes_.settle({{npy_intp(n_), 1}})) return false;
        const auto* numbers = reinterpret_cast<const int64_t*>(lanes_.pointer());
        numbers_.assign(numbers, numbers + n_);
        called_.resize(size_t(lanes));
        ++calls_;
        for (const int64_t number : numbers_) {
            if (number < 0 || number >= lanes || called_[size_t(number)] == calls_) return false;
            called_[size_t(number)] = calls_;
        }
        return true;
    }

    // The leading axes, as the reward has them.
    bool take_lead() {
        PyObject* time_major = given_[TIME_MAJOR];
        if (time_major && !PyBool_Check(time_major)) return false;
        PyObject* found = find(places_[reward_]);
        if (!found || values_[reward_].acquire(found) != Value::YES) return false;
        Value& reward = values_[reward_];
        reward.look();
        const int axes = reward.axes() - reward.own_axes();
        const bool flat = axes == 1 && n_ == 1, by_time = time_major == Py_True && !flat;
        if (!flat && axes != 2) return false;
        const npy_intp length = reward.length(flat || by_time ? 0 : 1);
        lead_ = Lead{{npy_intp(n_), length}, 2, flat, by_time};
        if (by_time) std::swap(lead_.sizes[0], lead_.sizes[1]);
        return length > 0;
    }

    // One for all steps, or one for each; those of a single lane, or of a single moment, without the first axis.
    bool settle_priority() {
        priority_.look();
        const bool number = is_integer(priority_.given()) || priority_.given() >= Number::BF16;
        const auto count = size_t(lead_.count());
        Lead lead = lead_;
        lead.optional = lead.sizes[0] == 1;
        if (!number || !priority_.settle(priority_.axes() ? lead : Lead{{1, 1}, 1, true, false})) return false;
        const auto* given = reinterpret_cast<const double*>(priority_.pointer());
        if (priority_.axes())
            priorities_.assign(given, given + count);
        else
            priorities_.assign(count, *given);
        return all_priorities(priorities_.data(), int64_t(count));
    }

    size_t name_of(const std::string& name) {
        for (const Name known : {OBS, ACTION, REWARD})
            if (name == nb::cast<std::string>(names_[known])) return known;
        for (size_t at = NAMES; at < names_.size(); ++at)
            if (name == nb::cast<std::string>(names_[at])) return at;
        names_.push_back(interned(name.c_str()));
        return names_.size() - 1;
    }

    // There may be no memory for it.
    static nb::object interned(const char* name) {
        PyObject* made = PyUnicode_InternFromString(name);
        if (!made) throw nb::python_error();
        return nb::steal(made);
    }

    static Py_ssize_t children(const std::vector<std::vector<std::string>>& paths,
                               const std::vector<std::string>& prefix) {
        std::vector<std::string> names;
        for (const auto& path : paths)
            if (path.size() > prefix.size() && std::equal(prefix.begin(), prefix.end(), path.begin())) {
                const std::string& name = path[prefix.size()];
                if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
            }
        return Py_ssize_t(names.size());
    }

    static Py_ssize_t position_of(const std::string& key) {
        const bool digits =
            !key.empty() && key.size() < 10 &&
            std::all_of(key.begin(), key.end(), [](char letter) { return letter >= '0' && letter <= '9'; });
        return digits && (key.size() == 1 || key[0] != '0') ? Py_ssize_t(std::stol(key)) : -1;
    }

    void add_column(nb::handle layout, const std::vector<std::vector<std::string>>& paths, size_t c, size_t name) {
        const std::vector<std::string>& path = paths[c];
        Place place{name, {}};
        for (size_t depth = 1; depth < path.size(); ++depth) {
            const std::vector<std::string> parent(path.begin(), path.begin() + long(depth));
            const bool first = c == 0 || paths[c - 1].size() <= depth ||
                               !std::equal(parent.begin(), parent.end(), paths[c - 1].begin());
            place.keys.push_back(
                {interned(path[depth].c_str()), first ? children(paths, parent) : -1, position_of(path[depth])});
        }
        places_.push_back(std::move(place));
        const nb::object column = layout.attr("array");
        PyArrayObject* rows = array(column);
        std::vector<npy_intp> shape;
        npy_intp bytes = PyArray_ITEMSIZE(rows);
        for (nb::handle axis : layout.attr("shape")) {
            const auto length = nb::cast<npy_intp>(axis);
            require(length >= 0 && (length == 0 || bytes <= NPY_MAX_INTP / length),
                    "relive._ring._native.Ring: a value of another size");
            shape.push_back(length);
            bytes *= length;
        }
        const Number type = number_of(PyArray_DESCR(rows));
        const bool whole = nb::cast<bool>(layout.attr("whole"));
        require(whole || !shape.empty(), "relive._ring._native.Ring: no frames behind");
        const bool behind = !whole && shape.back() > 1;
        const bool discrete = name == ACTION && shape.empty() && is_integer(type);
        values_.emplace_back(type, size_t(PyArray_ITEMSIZE(rows)), std::move(shape), behind, discrete);
    }
};

}  // namespace relive
