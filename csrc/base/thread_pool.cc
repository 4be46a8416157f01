#include "base/thread_pool.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/cpu.h"

namespace clover {

namespace {

// Between two layers the caller is busy for a few microseconds, between two passes for tens; waking a parked thread
// takes about as long again. After this much idling nobody spins.
constexpr std::chrono::microseconds kSpin{50};

class Crew;
struct Seat { // the job this thread is working in, and its number there
    const Crew *crew = nullptr;
    int worker = 0;
};
thread_local Seat t_seat;

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

template <typename Ready> bool spin_until(Ready ready) {
    const auto deadline = std::chrono::steady_clock::now() + kSpin;
    do {
        for (int i = 0; i < 16; ++i) {
            if (ready())
                return true;
            pause();
        }
    } while (std::chrono::steady_clock::now() < deadline);
    return ready();
}

using Function = std::function<void(int64_t, int)>;

// The workers and the one job they share. A worker joins a job only while it is open, and the
// caller leaves only when every worker that joined has left: a worker that wakes late, or does not
// exist after a fork, holds nobody up.
class Crew {
  public:
    explicit Crew(int threads) : owner(getpid()) {
        for (int worker = 1; worker < threads; ++worker)
            workers_.emplace_back([this, worker] { work(worker); });
    }

    ~Crew() {
        state_.fetch_or(kStop);
        wake();
        for (std::thread &worker : workers_)
            worker.join();
    }

    void run(int64_t items, const Function &fn) {
        if (t_seat.crew == this) { // called from inside a job
            for (int64_t item = 0; item < items; ++item)
                fn(item, t_seat.worker);
            return;
        }
        const std::lock_guard<std::mutex> one_caller(callers_);
        fn_ = &fn;
        items_ = items;
        next_.store(0, std::memory_order_relaxed);
        const bool shared = items > 1 && !workers_.empty();
        if (shared) {
            state_.fetch_add(kEpoch | kOpen); // it was closed and empty
            wake();
        }
        take_items(0);
        if (shared) {
            state_.fetch_and(~kOpen);
            wait_for_leavers();
        }
        if (error_)
            std::rethrow_exception(std::exchange(error_, nullptr));
    }

    const pid_t owner;

  private:
    // state_: bit 0 open, bit 1 stop, bits 2..31 workers inside, bits 32.. job number.
    static constexpr uint64_t kOpen = 1, kStop = 2, kInside = 4, kInsideMask = 0xfffffffc, kEpoch = uint64_t(1) << 32;

    static bool has_news(uint64_t state, uint64_t seen) {
        return (state & kStop) || ((state & kOpen) && state / kEpoch != seen);
    }

    void work(int worker) {
        uint64_t seen = 0;
        for (;;) {
            wait_for_news(seen);
            uint64_t state = state_.load();
            if (state & kStop)
                return;
            if (!has_news(state, seen) || !state_.compare_exchange_weak(state, state + kInside))
                continue;
            seen = state / kEpoch;
            take_items(worker);
            const uint64_t left = state_.fetch_sub(kInside) - kInside;
            if (!(left & kOpen) && !(left & kInsideMask)) {
                const std::lock_guard<std::mutex> lock(mutex_);
                done_.notify_one();
            }
        }
    }

    void wait_for_news(uint64_t seen) {
        const auto news = [&] { return has_news(state_.load(), seen); };
        if (spin_until(news))
            return;
        std::unique_lock<std::mutex> lock(mutex_);
        parked_.fetch_add(1);
        news_.wait(lock, news);
        parked_.fetch_sub(1);
    }

    void wake() {
        if (parked_.load() == 0)
            return;
        {
            const std::lock_guard<std::mutex> lock(mutex_);
        } // a worker past its check is in wait() now
        news_.notify_all();
    }

    void wait_for_leavers() {
        const auto empty = [&] { return (state_.load() & kInsideMask) == 0; };
        if (spin_until(empty))
            return;
        std::unique_lock<std::mutex> lock(mutex_);
        done_.wait(lock, empty);
    }

    void take_items(int worker) {
        const Seat outer = std::exchange(t_seat, Seat{this, worker});
        try {
            for (int64_t item; (item = next_.fetch_add(1, std::memory_order_relaxed)) < items_;)
                (*fn_)(item, worker);
        } catch (...) {
            const std::lock_guard<std::mutex> lock(mutex_);
            if (!error_)
                error_ = std::current_exception();
            next_.store(items_, std::memory_order_relaxed);
        }
        t_seat = outer;
    }

    std::mutex callers_, mutex_;
    std::condition_variable news_, done_;
    std::atomic<uint64_t> state_{0};
    std::atomic<int> parked_{0};
    alignas(64) std::atomic<int64_t> next_{0};
    int64_t items_ = 0;
    const Function *fn_ = nullptr;
    std::exception_ptr error_;
    std::vector<std::thread> workers_;
};

} // namespace

struct ThreadPool::Impl {
    int threads;
    std::atomic<Crew *> crew;

    // The crew of this process. A forked child has none of its parent's threads and perhaps locks
    // that nobody will open: it leaves the old crew alone for good and makes its own.
    Crew &current() {
        Crew *now = crew.load();
        if (now->owner == getpid())
            return *now;
        auto fresh = std::make_unique<Crew>(threads);
        if (crew.compare_exchange_strong(now, fresh.get()))
            return *fresh.release();
        return *now;
    }
};

ThreadPool::ThreadPool(int threads) : impl_(new Impl{threads > 0 ? threads : default_threads(""), {}}) {
    impl_->crew = new Crew(impl_->threads);
}

ThreadPool::~ThreadPool() {
    Crew *crew = impl_->crew.load();
    if (crew->owner == getpid())
        delete crew;
}

int ThreadPool::size() const { return impl_->threads; }

void ThreadPool::run(int64_t items, const Function &fn) { impl_->current().run(items, fn); }

} // namespace clover
