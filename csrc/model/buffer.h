// Cache-line aligned memory that is not cleared on allocation.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

namespace clover {

template <class T> class Buffer {
  public:
    Buffer() = default;
    explicit Buffer(int64_t n) { resize(n); }

    T *data() { return p_.get(); }
    const T *data() const { return p_.get(); }
    int64_t size() const { return n_; }
    int64_t bytes() const { return n_ * int64_t(sizeof(T)); }

    // The contents are lost.
    void resize(int64_t n) {
        p_.reset();
        n_ = 0;
        p_.reset(allocate(n));
        n_ = n;
    }

    // Keeps the first `kept` values.
    void grow(int64_t n, int64_t kept) {
        std::unique_ptr<T[], Free> bigger(allocate(n));
        copy(bigger.get(), p_.get(), kept);
        p_ = std::move(bigger);
        n_ = n;
    }

    void assign(const T *from, int64_t n) {
        if (n != n_)
            resize(n);
        copy(p_.get(), from, n);
    }

    void clear() {
        if (n_)
            std::memset(p_.get(), 0, size_t(bytes()));
    }

  private:
    static constexpr std::align_val_t kAlign{64};

    struct Free {
        void operator()(T *p) const { ::operator delete(p, kAlign); }
    };

    static T *allocate(int64_t n) {
        return n ? static_cast<T *>(::operator new(size_t(n) * sizeof(T), kAlign)) : nullptr;
    }

    static void copy(T *to, const T *from, int64_t n) {
        if (n) // memcpy may not be given null, even for no bytes
            std::memcpy(to, from, size_t(n) * sizeof(T));
    }

    std::unique_ptr<T[], Free> p_;
    int64_t n_ = 0;
};

} // namespace clover
