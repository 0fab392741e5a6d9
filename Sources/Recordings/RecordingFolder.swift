// The folder of the recordings: made, cleaned up after a crash, and kept within its bounds.

import MonotonicTime

#if canImport(Glibc)
import Glibc
#else
import Musl
#endif

/// The folder of the recordings. Files that are none are never touched.
struct RecordingFolder {
    /// A clock that shows an earlier time than this (2020) was never set: what is dated so is not removed for its age.
    static let clockIsSetAfter = 1_577_836_800

    let settings: RecordingSettings

    /// Makes the folder, for its user only, if it is not there.
    func make() throws(RecordingError) {
        var path = settings.folder.hasPrefix("/") ? "/" : ""
        for part in settings.folder.split(separator: "/") {
            path += (path.isEmpty || path == "/" ? "" : "/") + part
            if mkdir(path, 0o700) != 0, errno != EEXIST, errno != EISDIR, !Self.isDirectory(path) {
                throw RecordingError("make the folder", path)
            }
        }
        guard Self.isDirectory(settings.folder) else {
            throw RecordingError("use the folder", settings.folder, code: ENOTDIR)
        }
    }

    // MARK: After a crash

    /// Recordings that a process left behind when it was killed: what is whole of each gets its name, what is nothing goes.
    ///
    /// - Returns: How many were saved and how many removed.
    func recover() throws(RecordingError) -> (saved: Int, removed: Int) {
        var saved = 0
        var removed = 0
        for text in try names() {
            guard let name = RecordingName.wanted(ofHidden: text) else { continue }
            let path = settings.folder + "/" + text
            let descriptor = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
            guard descriptor >= 0 else { continue }
            defer { close(descriptor) }
            // Somebody is writing it.
            guard flock(descriptor, LOCK_EX | LOCK_NB) == 0 else { continue }
            if closeStream(descriptor) {
                try RecordingFile.reveal(path, as: name, in: settings.folder)
                saved += 1
            } else if unlink(path) == 0 {
                removed += 1
            }
        }
        return (saved, removed)
    }

    /// Cuts off what is not whole, and marks the end.
    private func closeStream(_ descriptor: Int32) -> Bool {
        var status = stat()
        guard fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG,
            Int(status.st_size) <= settings.byteCountMax + 1_000_000
        else { return false }
        var bytes = [UInt8](repeating: 0, count: Int(status.st_size))
        let count = bytes.withUnsafeMutableBytes { pread(descriptor, $0.baseAddress, $0.count, 0) }
        guard count == bytes.count else { return false }
        let whole = OggPages.whole(bytes)
        guard whole.pages > OggPages.headPages else { return false }
        let last = OggPages.closed(Array(bytes[whole.lastPage..<whole.byteCount]))
        let written = last.withUnsafeBytes { pwrite(descriptor, $0.baseAddress, $0.count, off_t(whole.lastPage)) }
        return written == last.count && ftruncate(descriptor, off_t(whole.byteCount)) == 0 && fsync(descriptor) == 0
    }

    // MARK: Bounds

    /// Removes the recordings that are too old or too many.
    ///
    /// - Parameter now: Seconds since 1970.
    /// - Returns: How many were removed.
    func rotate(now: Int) throws(RecordingError) -> Int {
        var kept: [(name: RecordingName, byteCount: Int)] = []
        for text in try names() {
            guard let name = RecordingName(text) else { continue }
            var status = stat()
            guard lstat(settings.folder + "/" + text, &status) == 0, status.st_mode & S_IFMT == S_IFREG else {
                continue
            }
            kept.append((name, Int(status.st_size)))
        }
        kept.sort { $0.name < $1.name }
        var bytes = kept.reduce(0) { $0 + $1.byteCount }
        var count = kept.count
        var removed = 0
        let oldest = now - Int(settings.age.nanoseconds / 1_000_000_000)
        for (name, byteCount) in kept {
            let isOld = name.seconds < oldest && name.seconds >= Self.clockIsSetAfter
            guard isOld || count > settings.fileCountMax || bytes > settings.byteCountMax else { continue }
            let path = settings.folder + "/" + name.text
            guard unlink(path) == 0 || errno == ENOENT else { throw RecordingError("remove", path) }
            bytes -= byteCount
            count -= 1
            removed += 1
        }
        return removed
    }

    private func names() throws(RecordingError) -> [String] {
        guard let directory = opendir(settings.folder) else { throw RecordingError("list", settings.folder) }
        defer { closedir(directory) }
        var names: [String] = []
        while let entry = readdir(directory) {
            let name = withUnsafePointer(to: &entry.pointee.d_name) { pointer in
                pointer.withMemoryRebound(to: CChar.self, capacity: 256) { String(validatingCString: $0) }
            }
            if let name { names.append(name) }
        }
        return names
    }

    private static func isDirectory(_ path: String) -> Bool {
        var status = stat()
        return stat(path, &status) == 0 && status.st_mode & S_IFMT == S_IFDIR
    }
}
