// Why a burst is not kept.

#if canImport(Glibc)
import Glibc
#else
import Musl
#endif

/// Why a burst is not kept.
struct RecordingError: Error, Equatable, CustomStringConvertible {
    /// What was tried.
    var operation: String
    /// With which file.
    var path: String
    /// errno.
    var code: Int32

    init(_ operation: String, _ path: String, code: Int32 = errno) {
        self.operation = operation
        self.path = path
        self.code = code
    }

    /// What happened and what to do about it.
    var description: String {
        "cannot \(operation) \(path): \(String(cString: strerror(code))); see that pttd may write there and the disk has room"
    }
}
