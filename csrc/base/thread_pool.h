// A small persistent pool: workers spin for a moment, then park. No OpenMP, so that no other
// library's runtime is in the process and the count is ours alone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace clover {

class ThreadPool {
  public:
    // threads = 0: default_threads().
    explicit ThreadPool(int threads = 0);
    ~ThreadPool();
    ThreadPool(const ThreadPool &) = delete;
    ThreadPool &operator=(const ThreadPool &) = delete;

    int size() const;

    // Calls fn(item, worker) once for every item in [0, items); workers take items from one counter.
    // Which worker computes an item must not change its result. Rethrows the first exception.
    // Several threads may call: they take turns. A run inside a run of the same pool is done
    // inline by the worker that calls it. Works in a forked child, too.
    void run(int64_t items, const std::function<void(int64_t item, int worker)> &fn);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

// The count that threads = 0 stands for: min(CPUs this process may use, cgroup CPU quota rounded
// down, physical cores among them), at least 1. `root` is prefixed to /proc and /sys, for tests.
int default_threads(const char *root = "");

} // namespace clover
