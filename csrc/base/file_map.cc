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

} // namespace

FileMap::FileMap(std::string path) : path_(std::move(path)) {
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
    void *map = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_SHARED, file.fd, 0);
    if (map == MAP_FAILED)
        throw FormatError(path_, "file", std::string("cannot be mapped: ") + std::strerror(errno));
    data_ = static_cast<const uint8_t *>(map);
    size_ = static_cast<size_t>(info.st_size);
}

FileMap::~FileMap() { unmap(); }

FileMap::FileMap(FileMap &&other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

FileMap &FileMap::operator=(FileMap &&other) noexcept {
    if (this != &other) {
        unmap();
        path_ = std::move(other.path_);
        data_ = std::exchange(other.data_, nullptr);
        size_ = std::exchange(other.size_, 0);
    }
    return *this;
}

void FileMap::unmap() {
    if (data_)
        munmap(const_cast<uint8_t *>(data_), size_);
}

void FileMap::advise(size_t offset, size_t bytes, int advice) const {
    if (offset >= size_ || bytes == 0)
        return;
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t begin = offset / page * page;
    const size_t end = offset + std::min(bytes, size_ - offset);
    madvise(const_cast<uint8_t *>(data_) + begin, end - begin, advice);
}

void FileMap::will_need(size_t offset, size_t bytes) const { advise(offset, bytes, MADV_WILLNEED); }

void FileMap::dont_need(size_t offset, size_t bytes) const { advise(offset, bytes, MADV_DONTNEED); }

} // namespace clover
