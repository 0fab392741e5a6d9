// The folder of the recordings: created, cleaned up after a crash, and kept within its limits.

import Files
import Glibc
import MonotonicTime

/// The folder of the recordings. Files that are none are never touched.
struct RecordingFolder: RecordingStorage {
    let settings: RecordingSettings
    /// unlink(2).
    var unlinkFile: (String) -> Int32 = { unlink($0) }

    /// Makes the folder, for its user only, if it is not there.
    func make() throws(RecordingError) {
        try AtomicFile.makeDirectory(settings.folder, mode: 0o700)
    }

    func begin(_ label: RecordingLabel) throws(RecordingError) -> any RecordingOutput {
        try RecordingFile(folder: settings.folder, label: label)
    }

    // MARK: After a crash

    /// Recordings that a process left behind when it was killed: what is whole of each gets its name, what is nothing goes.
    ///
    /// - Returns: How many were saved and how many removed.
    /// - Throws: Why the first was not saved that could not be; it waits for the next start. The others were saved all the same.
    func recover() throws(RecordingError) -> (saved: Int, removed: Int) {
        var saved = 0
        var removed = 0
        var problem: RecordingError?
        for text in try names() {
            guard let name = RecordingName.wanted(ofHidden: text) else { continue }
            let path = settings.folder + "/" + text
            let descriptor = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
            guard descriptor >= 0 else { continue }
            defer { close(descriptor) }
            // Somebody is writing it.
            guard flock(descriptor, LOCK_EX | LOCK_NB) == 0 else { continue }
            do throws(RecordingError) {
                if try closeStream(descriptor, path) {
                    try RecordingFile.reveal(path, as: name, in: settings.folder)
                    saved += 1
                } else if unlink(path) == 0 {
                    removed += 1
                }
            } catch {
                problem = problem ?? error
            }
        }
        if let problem { throw problem }
        return (saved, removed)
    }

    /// Cuts off what is not whole, and marks the end. False: there is no sound in it.
    private func closeStream(_ descriptor: Int32, _ path: String) throws(RecordingError) -> Bool {
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { throw RecordingError("read", path) }
        guard status.st_mode & S_IFMT == S_IFREG, Int(status.st_size) <= settings.byteCountMax + 1_000_000 else {
            return false
        }
        var bytes = [UInt8](repeating: 0, count: Int(status.st_size))
        let count = bytes.withUnsafeMutableBytes { pread(descriptor, $0.baseAddress, $0.count, 0) }
        guard count == bytes.count else { throw RecordingError("read", path, code: count < 0 ? errno : EIO) }
        let whole = OggPages.whole(bytes)
        guard whole.pages > OggPages.headPages else { return false }
        let last = OggPages.closed(Array(bytes[whole.lastPage..<whole.byteCount]))
        let written = last.withUnsafeBytes { pwrite(descriptor, $0.baseAddress, $0.count, off_t(whole.lastPage)) }
        guard written == last.count else { throw RecordingError("write", path, code: written < 0 ? errno : ENOSPC) }
        guard ftruncate(descriptor, off_t(whole.byteCount)) == 0, fsync(descriptor) == 0 else {
            throw RecordingError("write", path)
        }
        return true
    }

    // MARK: Bounds

    /// Removes the recordings that are too old or too many.
    ///
    /// - Parameters:
    ///   - now: Seconds since 1970.
    ///   - elapsed: Seconds since the last time by the monotonic clock; 0 at a start.
    /// - Returns: How many were removed.
    /// - Throws: Why the first was not removed that could not be. It counts as one that is there; the others were removed all the same.
    func rotate(now: Int, elapsed: Int = 0) throws(RecordingError) -> Int {
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
        var problem: RecordingError?
        let age = Int(settings.age.components.seconds)
        let newest = kept.last { $0.name.seconds <= now }?.name.seconds
        let clock = clock(now: now, elapsed: elapsed, newest: newest, .init(age: age))
        for (name, byteCount) in kept {
            let isOld =
                name.seconds >= RecordingClock.isSetAfter && clock.map { $0.age(of: name.seconds) > age } ?? false
            guard isOld || count > settings.fileCountMax || bytes > settings.byteCountMax else { continue }
            let path = settings.folder + "/" + name.text
            guard unlinkFile(path) == 0 || errno == ENOENT else {
                problem = problem ?? RecordingError("remove", path)
                continue
            }
            bytes -= byteCount
            count -= 1
            removed += 1
        }
        if let problem { throw problem }
        return removed
    }

    /// The clock's history, with what it shows now; nil: it was never set. What is known of it is kept in the folder.
    private func clock(
        now: Int, elapsed: Int, newest: Int?, _ tolerance: RecordingClock.Tolerance
    ) -> RecordingClock? {
        guard now >= RecordingClock.isSetAfter else { return nil }
        let path = settings.folder + "/" + RecordingClock.fileName
        let bytes = try? RegularFile.read(path, byteCountMax: RecordingClock.byteCountMax, followsLinks: false)
        let known = bytes.flatMap { RecordingClock(text: String(decoding: $0, as: UTF8.self)) }
        var clock = known ?? RecordingClock(now: now, newest: newest, tolerance: tolerance)
        clock.advance(to: now, elapsed: elapsed, tolerance: tolerance)
        let last = clock.stretches.last?.last ?? now
        let isNews =
            known?.stretches.count != clock.stretches.count || abs(last - (known?.stretches.last?.last ?? 0)) >= 3_600
        if isNews {
            if let facts = FileFacts(of: path, followsLinks: false), facts.kind == .directory { rmdir(path) }
            // It may be lost: the newest recording is then what is known.
            try? AtomicFile.write(Array(clock.text.utf8), to: path, isSecret: true, waits: false)
        }
        return clock
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
}
