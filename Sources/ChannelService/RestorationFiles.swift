// The few file operations that the restoration store is made of, and what they are on this system.

import Files
import Glibc

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
        do throws(FileError) {
            return try RegularFile.readIfPresent(path, byteCountMax: byteCountMax, followsLinks: false)
        } catch {
            // One more byte than a record can have, so that a larger file is no record.
            if case .tooLarge = error.cause { return [UInt8](repeating: 0, count: byteCountMax + 1) }
            throw .file(error)
        }
    }

    func write(_ bytes: [UInt8], to path: String) throws(RestorationStoreError) {
        try attempt { () throws(FileError) in try AtomicFile.writeThrough(bytes, to: path, mode: 0o600) }
    }

    func rename(_ path: String, to other: String) throws(RestorationStoreError) {
        guard systemRename(path, other) == 0 else { throw .file(FileError("replace", other)) }
    }

    func remove(_ path: String) throws(RestorationStoreError) {
        guard unlink(path) == 0 || errno == ENOENT else { throw .file(FileError("remove", path)) }
    }

    func synchronize(directory: String) throws(RestorationStoreError) {
        try attempt { () throws(FileError) in try AtomicFile.synchronize(directory: directory) }
    }

    private func attempt(_ body: () throws(FileError) -> Void) throws(RestorationStoreError) {
        do throws(FileError) { try body() } catch { throw .file(error) }
    }
}

/// rename(2), whose name a method above has, too.
private func systemRename(_ path: String, _ other: String) -> Int32 { rename(path, other) }
