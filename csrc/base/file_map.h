// A file's bytes, read-only: mapped, so that pages come from disk when first read and may be dropped at any time
// and weights larger than memory cost time, not a failure; or copied into huge pages, which reads faster (fewer
// address translations: docs/performance.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace clover {

class FileMap {
  public:
    // Throws FormatError(path, "file", reason) when the file cannot be opened, mapped or (for a copy) read, is
    // empty or is no regular file.
    explicit FileMap(std::string path, bool copy = false);
    ~FileMap();
    FileMap(FileMap &&other) noexcept;
    FileMap &operator=(FileMap &&other) noexcept;
    FileMap(const FileMap &) = delete;
    FileMap &operator=(const FileMap &) = delete;

    const uint8_t *data() const { return data_; }
    size_t size() const { return size_; }
    const std::string &path() const { return path_; }

    // Hints about a mapped file's [offset, offset + bytes), clipped to the file: read ahead; may be dropped.
    // They never fail and never change what is read.
    void will_need(size_t offset, size_t bytes) const;
    void dont_need(size_t offset, size_t bytes) const;

  private:
    void advise(size_t offset, size_t bytes, int advice) const;
    void unmap();

    std::string path_;
    const uint8_t *data_ = nullptr;
    size_t size_ = 0;
    bool copied_ = false;
};

} // namespace clover
