// The two halves of a native draw: a sampler's kernel chooses slots, an item's kernel copies what starts there.
#pragma once

#include "items.hpp"

namespace relive {

// Ids of items, and as many TD errors, one way or the other.
struct Updates {
    const int64_t* ids = nullptr;
    const double* wide = nullptr;
    const float* narrow = nullptr;
    int64_t n = 0;
};

// Chooses slots; the caller has the buffer's lock.
class Chooser {
public:
    virtual ~Chooser() = default;

    // Take in what changed; how many items can be drawn.
    virtual int64_t refresh() = 0;
    // Whether a batch may hold an item twice.
    virtual bool replacement() const = 0;
    // Whether items have priorities, and weights other than 1.
    virtual bool prioritizes() const = 0;

    // Uniforms that a draw of `n` items takes.
    virtual int64_t numbers(int64_t n) const { return n; }
    // Get the memory that choosing `n` items needs, so that nothing fails behind the draw from the generator.
    virtual void prepare(int64_t n) = 0;
    // Note that a draw begins; `beta`: its exponent of the weights, null for the sampler's own. Returns the exponent.
    virtual double begin(const double* beta) = 0;
    // Choose `n` slots by uniforms in [0, 1); `values` is room for as many numbers,
    // `weights` null where nobody asks for them.
    virtual void choose(const double* u, int64_t n, double beta, int64_t* slots, double* values, float* weights) = 0;

    // Set the priorities of those items that can be drawn; how many they are. -1, and no priority has changed, where
    // an id was never issued or a TD error is not finite.
    virtual int64_t update(const Updates&) { return -1; }

    // The probability of items at slots that can be drawn, in a draw of one; after `refresh`.
    virtual void probability(const int64_t* slots, int64_t n, double* result) = 0;
    // The same of what was chosen last, from the `values` that `choose` left; false, and nothing is done, where it
    // leaves none.
    virtual bool probable(double*, int64_t) { return false; }
    // Whether these `values` are masses by the least of which the weights were divided.
    virtual bool leaves_masses() const { return false; }
};

// Copies items; the caller has the buffer's lock.
class Expansion {
public:
    virtual ~Expansion() = default;

    // Add the fields of a batch, `ids` as the last of them.
    virtual void lay_out(Layout& layout) = 0;
    // Rows that an item is copied from.
    virtual int64_t rows() const = 0;
    // Uniforms that an item takes; `scratch` begins with those of all items.
    virtual int64_t numbers() const { return 0; }
    // Numbers that `expand` needs room for, for each item, these included.
    virtual int64_t scratch() const = 0;
    // Copy the items at checked slots, field by field to where `to` says. Others may make their calls
    // meanwhile where there are `WORTH_RELEASING` rows.
    virtual void expand(const int64_t* slots, int64_t n, char* const* to, int64_t* scratch) = 0;

    // Tell the garbage collector of what may refer to the buffer.
    virtual int traverse(visitproc, void*) const { return 0; }

    // A dict of the items at some slots, of which none takes uniforms.
    nb::dict items(const int64_t* slots, int64_t n) {
        require(!numbers(), "relive._ring._native.Expansion.items: no uniforms");
        if (!layout_) {
            auto layout = std::make_shared<Layout>();
            lay_out(*layout);
            layout->end();
            layout_ = layout;
        }
        const nb::object made = Items::make(layout_, npy_intp(n));
        std::vector<char*> to;
        for (size_t f = 0; f < layout_->fields().size(); ++f) to.push_back(Items::data(made, f));
        std::vector<int64_t> room(size_t(n * scratch()));
        expand(slots, n, to.data(), room.data());
        return Items::fields(made);
    }

private:
    std::shared_ptr<const Layout> layout_;
};

}  // namespace relive
