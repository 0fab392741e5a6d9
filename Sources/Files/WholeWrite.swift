// Writes all bytes to a descriptor, in as many calls as that takes.
import Glibc

/// Writes all of `bytes`, waiting for a reader that is slow.
///
/// The descriptor may be without blocking by the doing of another program that has it too.
///
/// - Returns: 0, or the errno value (write(2)) of what ended it; then the rest is not written.
public func writeWhole(_ bytes: [UInt8], to descriptor: Int32) -> Int32 {
    var rest = bytes[...]
    while !rest.isEmpty {
        let count = rest.withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
        if count > 0 {
            rest = rest.dropFirst(count)
            continue
        }
        switch count == 0 ? EIO : errno {
        case EINTR: continue
        case EAGAIN:
            var wish = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
            poll(&wish, 1, -1)
        case let code: return code
        }
    }
    return 0
}
