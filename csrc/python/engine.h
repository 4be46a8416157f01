// A model as Python holds it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <pybind11/pybind11.h>

#include "model/model.h"

namespace clover {

namespace py = pybind11;

// A model and the lock that lets one call at a time use it. States keep it alive.
struct Engine {
    Engine(const Spec &spec, const std::vector<std::string> &files, const std::vector<TensorRow> &table,
           const ModelOptions &options)
        : model(spec, files, table, options) {}

    Model model;
    std::mutex mutex;
    std::atomic<std::thread::id> user{};
};

struct Sequence {
    std::shared_ptr<Engine> engine;
    State state;
};

inline void check_owner(const Engine &engine, const Sequence &sequence) {
    if (sequence.engine.get() != &engine)
        throw ArgumentError("the state belongs to another model");
}

// The right to use an engine, or also its drafter's, and no interpreter lock while it lasts.
class Lease {
  public:
    explicit Lease(Engine &engine, Engine *drafter = nullptr)
        : engine_(check(engine)), drafter_(drafter ? &check(*drafter) : nullptr), lock_(engine.mutex) {
        if (drafter_)
            drafter_lock_ = std::unique_lock<std::mutex>(drafter_->mutex); // drafters have none: no circle
        use(std::this_thread::get_id());
    }
    ~Lease() { use(std::thread::id()); }
    Lease(const Lease &) = delete;
    Lease &operator=(const Lease &) = delete;

  private:
    static Engine &check(Engine &engine) {
        if (engine.user.load() == std::this_thread::get_id())
            throw ArgumentError("the model is in use by the call that runs this callback");
        return engine;
    }

    void use(std::thread::id thread) {
        engine_.user = thread;
        if (drafter_)
            drafter_->user = thread;
    }

    Engine &engine_;
    Engine *const drafter_;
    py::gil_scoped_release released_; // before the lock: its holder may be waiting for the interpreter
    std::unique_lock<std::mutex> lock_, drafter_lock_;
};

// Between passes: throws what a signal, as Ctrl-C, has raised.
void check_signals();
// Throws ArgumentError naming the token that is no id.
std::vector<int> ids_from(const py::object &);

// generate() and what belongs to drafters: register_generate.cc.
void register_generate(py::class_<Engine, std::shared_ptr<Engine>> &);
// Model.load_state(): register_state.cc.
void register_load_state(py::class_<Engine, std::shared_ptr<Engine>> &);
// The observer of a model's layers: register_observer.cc.
void register_observer(py::class_<Engine, std::shared_ptr<Engine>> &);

} // namespace clover
