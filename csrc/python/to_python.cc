// What generations report, as Python dictionaries.
#include <pybind11/stl.h>

#include "python/bindings.h"

namespace py = pybind11;

namespace clover {
namespace {

const char *name_of(Finish finish) {
    switch (finish) {
    case Finish::stop:
        return "stop";
    case Finish::length:
        return "length";
    case Finish::cancelled:
        return "cancelled";
    case Finish::none:
        break;
    }
    return nullptr;
}

// (log-probability or None, ((id, log-probability), ...)) of each token
py::list to_python(const std::vector<LogProb> &logprobs) {
    py::list tokens;
    for (const LogProb &each : logprobs) {
        py::tuple top(each.top.size());
        for (size_t i = 0; i < each.top.size(); i++)
            top[i] = py::make_tuple(each.top[i].id, each.top[i].logit);
        py::object value = py::none();
        if (!std::isnan(each.value))
            value = py::float_(each.value);
        tokens.append(py::make_tuple(value, top));
    }
    return tokens;
}

} // namespace

py::dict to_python(const Event &e) {
    py::dict d;
    switch (e.type) {
    case Event::Type::prefill:
        d["type"] = "prefill";
        d["tokens"] = e.tokens;
        return d;
    case Event::Type::step:
        d["type"] = "step";
        d["block"] = e.block;
        d["step"] = e.step;
        d["ids"] = e.ids;
        d["draft"] = e.draft;
        d["accepted"] = std::vector<bool>(e.accepted.begin(), e.accepted.end());
        return d;
    case Event::Type::block:
        d["type"] = "block";
        d["block"] = e.block;
        d["ids"] = e.ids;
        d["finish"] = name_of(e.finish);
        d["logprobs"] = to_python(e.logprobs);
    }
    return d;
}

py::dict to_python(const DecodeResult &r) {
    const DecodeCounters &c = r.counters;
    py::dict counters;
    counters["blocks"] = c.blocks;
    counters["denoise_steps"] = c.denoise_steps;
    counters["commits"] = c.commits;
    counters["forward_passes"] = c.denoise_steps + c.commits;
    counters["drafter_passes"] = c.drafter_passes;
    counters["drafter_bytes_read"] = c.drafter_work.bytes_read;
    counters["prefill_passes"] = c.prefill_passes;
    counters["rows"] = c.work.rows;
    counters["experts_touched"] = c.work.experts_touched;
    counters["bytes_read"] = c.work.bytes_read;
    counters["prefill_seconds"] = c.prefill_seconds;
    counters["first_block_seconds"] = c.first_block_seconds;
    counters["decode_seconds"] = c.decode_seconds;
    py::dict d;
    d["ids"] = r.ids;
    d["finish_reason"] = name_of(r.finish);
    d["stop_id"] = r.stop_id < 0 ? py::object(py::none()) : py::object(py::int_(r.stop_id));
    d["logprobs"] = to_python(r.logprobs);
    d["counters"] = counters;
    return d;
}

} // namespace clover
