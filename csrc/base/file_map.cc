#include "base/file_map.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "base/error.h"

namespace clover {

namespace {

struct Descriptor { // closes on every path out; the mapping outlives it
    int fd;
    ~Descriptor() {
        if (fd >= 0)
            close(fd);
    }
};

// What went wrong, or nothing.
std::string read_all(int fd, uint8_t *to, size_t size) {
    constexpr size_t most = size_t(1) << 26; // of one call: a signal is seen soon
    for (size_t done = 0; done < size;) {
        const ssize_t got = pread(fd, to + done, std::min(most, size - done), static_cast<off_t>(done));
        if (got == 0)
            return "ends at byte " + std::to_string(done) + " of " + std::to_string(size);
        if (got < 0 && errno != EINTR)
            return std::string("cannot be read: ") + std::strerror(errno);
        done += got > 0 ? static_cast<size_t>(got) : 0;
    }
    return {};
}

} // namespace

FileMap::FileMap(std::string path, bool copy) : path_(std::move(path)) {
    Descriptor file{open(path_.c_str(), O_RDONLY | O_CLOEXEC)};
    if (file.fd < 0)
        throw FormatError(path_, "file", std::string("cannot be opened: ") + std::strerror(errno));
    struct stat info;
    if (fstat(file.fd, &info) != 0)
        throw FormatError(path_, "file", std::string("cannot be examined: ") + std::strerror(errno));
    if (!S_ISREG(info.st_mode))
        throw FormatError(path_, "file", "is not a regular file");
    if (info.st_size == 0)
        throw FormatError(path_, "file", "is empty");
    const size_t size = static_cast<size_t>(info.st_size);
    void *map = copy ? mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                     : mmap(nullptr, size, PROT_READ, MAP_SHARED, file.fd, 0);
    if (map == MAP_FAILED)
        throw FormatError(path_, "file", std::string("cannot be mapped: ") + std::strerror(errno));
    data_ = static_cast<const uint8_t *>(map);
    size_ = size;
    copied_ = copy;
    if (!copy)
        return;
#ifdef MADV_HUGEPAGE
    madvise(map, size, MADV_HUGEPAGE); // a refusal costs speed only
#endif
    const std::string failed = read_all(file.fd, static_cast<uint8_t *>(map), size);
    if (!failed.empty()) {
        unmap();
        throw FormatError(path_, "file", failed);
    }
    mprotect(map, size, PROT_READ);
}

FileMap::~FileMap() { unmap(); }

FileMap::FileMap(FileMap &&other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)),
      copied_(other.copied_) {}

FileMap &FileMap::operator=(FileMap &&other) noexcept {
    if (this != &other) {
        unmap();
        path_ = std::move(other.path_);
        data_ = std::exchange(other.data_, nullptr);
        size_ = std::exchange(other.size_, 0);
        copied_ = other.copied_;
    }
    return *this;
}

void FileMap::unmap() {
    if (data_)
        munmap(const_cast<uint8_t *>(data_), size_);
}

void FileMap::advise(size_t offset, size_t bytes, int advice) const {
    if (copied_ || offset >= size_ || bytes == 0)
        return;
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t begin = offset / page * page;
    const size_t end = offset + std::min(bytes, size_ - offset);
    madvise(const_cast<uint8_t *>(data_) + begin, end - begin, advice);
}

void FileMap::will_need(size_t offset, size_t bytes) const { advise(offset, bytes, MADV_WILLNEED); }

void FileMap::dont_need(size_t offset, size_t bytes) const { advise(offset, bytes, MADV_DONTNEED); }

} // namespace clover
