// The few file operations that the restoration store is made of, and what they are on this system.

import Settings

#if canImport(Glibc)
import Glibc
#else
import Musl
#endif

/// The file operations of the restoration store. Between any two of them, and within each, the process or the machine may end.
protocol RestorationFiles: Sendable {
    /// The file's bytes, one more than `byteCountMax` at most; nil when there is no file.
    func read(_ path: String, byteCountMax: Int) throws(RestorationStoreError) -> [UInt8]?
    /// Makes the file of these bytes, and waits until they are on the disk. It need not be whole after an error or an end.
    func write(_ bytes: [UInt8], to path: String) throws(RestorationStoreError)
    /// Gives the file another name, at once, in place of a file that has it.
    func rename(_ path: String, to other: String) throws(RestorationStoreError)
    /// Removes the file, if there is one.
    func remove(_ path: String) throws(RestorationStoreError)
    /// Waits until the names in the directory are on the disk.
    func synchronize(directory: String) throws(RestorationStoreError)
}

/// Linux' files.
struct SystemFiles: RestorationFiles {
    func read(_ path: String, byteCountMax: Int) throws(RestorationStoreError) -> [UInt8]? {
        // Not blocking: a pipe in the file's place must not stop the start.
        let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
        if descriptor < 0, errno == ENOENT { return nil }
        guard descriptor >= 0 else { throw Self.failure("read", path) }
        defer { close(descriptor) }
        var bytes: [UInt8] = []
        let blockSize = 65_536
        var block = [UInt8](repeating: 0, count: blockSize)
        while bytes.count <= byteCountMax {
            let count = block.withUnsafeMutableBytes { systemRead(descriptor, $0.baseAddress, $0.count) }
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw Self.failure("read", path) }
            if count == 0 { break }
            bytes += block[..<count]
        }
        return bytes
    }

    func write(_ bytes: [UInt8], to path: String) throws(RestorationStoreError) {
        do throws(AtomicFile.Failure) {
            try AtomicFile.writeThrough(bytes, to: path, mode: 0o600)
        } catch {
            throw RestorationStoreError(error)
        }
    }

    func rename(_ path: String, to other: String) throws(RestorationStoreError) {
        guard systemRename(path, other) == 0 else { throw Self.failure("replace", other) }
    }

    func remove(_ path: String) throws(RestorationStoreError) {
        guard unlink(path) == 0 || errno == ENOENT else { throw Self.failure("remove", path) }
    }

    func synchronize(directory: String) throws(RestorationStoreError) {
        do throws(AtomicFile.Failure) {
            try AtomicFile.synchronize(directory: directory)
        } catch {
            throw RestorationStoreError(error)
        }
    }

    private static func failure(_ operation: String, _ path: String) -> RestorationStoreError {
        .system(operation: operation, path: path, code: errno)
    }

    static func words(_ code: Int32) -> String { String(cString: strerror(code)) }
}

// The calls whose names the methods above have, too.
private func systemRead(_ descriptor: Int32, _ bytes: UnsafeMutableRawPointer?, _ count: Int) -> Int {
    read(descriptor, bytes, count)
}
private func systemRename(_ path: String, _ other: String) -> Int32 { rename(path, other) }

extension RestorationStoreError {
    /// The same in the store's words.
    init(_ failure: AtomicFile.Failure) {
        self = .system(operation: failure.operation, path: failure.path, code: failure.code)
    }
}
