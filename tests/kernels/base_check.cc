// Checks of csrc/base that need threads, forks or descriptors: base_check NAME [files]. Exit code 0
// means that the named check holds.
#include <atomic>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/error.h"
#include "base/file_map.h"
#include "base/thread_pool.h"

using clover::ThreadPool;

namespace {

void expect(bool condition, const char *what) {
    if (!condition)
        throw std::runtime_error(what);
}

// Runs `items` and checks that each was done once, by a worker with a proper number.
void run_once(ThreadPool &pool, int64_t items) {
    std::vector<std::atomic<int>> done(static_cast<size_t>(items));
    pool.run(items, [&](int64_t item, int worker) {
        expect(worker >= 0 && worker < pool.size(), "worker number out of range");
        ++done[static_cast<size_t>(item)];
    });
    for (const std::atomic<int> &count : done)
        expect(count == 1, "an item was not done exactly once");
}

void items() {
    ThreadPool pool(4);
    expect(pool.size() == 4, "size");
    for (int round = 0; round < 5000; ++round)
        run_once(pool, round % 67);
}

void parked() { // longer than the workers spin, so that every run has to wake them
    ThreadPool pool(3);
    for (int round = 0; round < 200; ++round) {
        usleep(300);
        run_once(pool, 9);
    }
}

void nested() {
    ThreadPool pool(4), other(2);
    std::atomic<int> inner{0}, foreign{0};
    pool.run(6, [&](int64_t, int worker) {
        pool.run(5, [&](int64_t, int again) {
            expect(worker == again, "a nested run changed its worker");
            ++inner;
        });
        other.run(3, [&](int64_t, int) { ++foreign; });
    });
    expect(inner == 30 && foreign == 18, "nested items");
}

void exception() {
    ThreadPool pool(4);
    for (int round = 0; round < 200; ++round) {
        bool caught = false;
        try {
            pool.run(50, [&](int64_t item, int) {
                if (item == round % 50)
                    throw std::out_of_range("item");
            });
        } catch (const std::out_of_range &) {
            caught = true;
        }
        expect(caught, "the exception was lost");
        run_once(pool, 20); // and the pool still works
    }
}

void callers() { // several threads take turns: no item of one job runs beside another job's
    ThreadPool pool(3);
    std::atomic<int> active[4] = {};
    std::atomic<bool> overlap{false};
    std::vector<std::thread> threads;
    for (int self = 0; self < 4; ++self)
        threads.emplace_back([&, self] {
            for (int round = 0; round < 300; ++round)
                pool.run(8, [&](int64_t, int) {
                    ++active[self];
                    for (int other = 0; other < 4; ++other)
                        if (other != self && active[other] != 0)
                            overlap = true;
                    --active[self];
                });
        });
    for (std::thread &thread : threads)
        thread.join();
    expect(!overlap, "two jobs ran at once");
}

int wait_for(pid_t child) {
    int status = 0;
    expect(waitpid(child, &status, 0) == child && WIFEXITED(status), "the child died");
    return WEXITSTATUS(status);
}

void fork_works() { // parent's threads are not in the child
    ThreadPool pool(4);
    run_once(pool, 10);
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        for (int round = 0; round < 100; ++round)
            run_once(pool, 40);
        _exit(0);
    }
    run_once(pool, 40);
    expect(wait_for(child) == 0, "the child's pool failed");
    run_once(pool, 40);
}

void fork_destroys() {
    auto pool = std::make_unique<ThreadPool>(4);
    run_once(*pool, 10);
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        pool.reset();
        _exit(7);
    }
    expect(wait_for(child) == 7, "destroying the pool in the child hung");
}

void one() {
    ThreadPool pool(1);
    const std::thread::id self = std::this_thread::get_id();
    pool.run(10, [&](int64_t, int worker) { expect(worker == 0 && std::this_thread::get_id() == self, "one thread"); });
    run_once(pool, 33);
    run_once(pool, 0);
    expect(ThreadPool().size() == clover::default_threads(), "default size");
}

void many() { // pools come and go, used or not
    for (int round = 0; round < 200; ++round) {
        ThreadPool pool(1 + round % 5);
        if (round % 2)
            run_once(pool, 12);
    }
}

void print_error(const char *path) {
    try {
        const clover::FileMap map(path);
        expect(false, "no error");
    } catch (const clover::FormatError &error) {
        expect(error.path == path && error.field == "file", "fields of the error");
        std::puts(error.what());
    }
}

void map(char **files) {
    clover::FileMap first(files[0]);
    expect(first.size() == 25600 && first.path() == files[0], "size and path");
    first.will_need(5000, 10000);
    first.dont_need(4097, 1);
    first.will_need(0, SIZE_MAX);
    first.dont_need(25600, 1);
    clover::FileMap map(std::move(first));
    expect(first.size() == 0 && first.data() == nullptr, "moved from");
    for (size_t i = 0; i < map.size(); ++i)
        expect(map.data()[i] == i % 256, "content");
    first = std::move(map);
    expect(first.data()[257] == 1 && map.data() == nullptr, "moved back");
    for (int i = 1; i < 4; ++i)
        print_error(files[i]);
}

struct Check {
    const char *name;
    void (*run)();
};

constexpr Check kChecks[] = {{"items", items},
                             {"parked", parked},
                             {"nested", nested},
                             {"exception", exception},
                             {"callers", callers},
                             {"fork", fork_works},
                             {"fork_destroys", fork_destroys},
                             {"one", one},
                             {"many", many}};

} // namespace

int main(int argc, char **argv) try {
    if (argc == 6 && std::strcmp(argv[1], "map") == 0) {
        map(argv + 2);
        return 0;
    }
    for (const Check &check : kChecks)
        if (argc == 2 && std::strcmp(argv[1], check.name) == 0) {
            check.run();
            return 0;
        }
    throw std::runtime_error("no such check");
} catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
