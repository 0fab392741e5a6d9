// The file that keeps the active channel over restarts: whole or not at all, whatever happens while it is written.

import Files
import MonotonicTime
import PushToTalkCore

/// The restoration record of this machine, in a file.
///
/// A save that returned is on the disk; one that was cut off, by SIGKILL or by the power, leaves what was there before. A
/// file that cannot be read as a record is set aside, so that it is looked at once and not at every start. Every call
/// waits for the disk: call it when a channel is joined, left or set up, not while somebody talks.
public struct RestorationStore: Sendable {
    /// What a start finds.
    public struct Loaded: Sendable {
        /// The channel to restore; nil: there is none.
        public var record: RestorationRecord?
        /// What was wrong and what to do about it, for the log; nil: nothing was.
        public var problem: String?
    }

    /// The file. Beside it appear `path.new` while it is written and `path.damaged` after it was set aside.
    public let path: String
    private let files: any RestorationFiles

    /// The store in the file `path`, whose directory is there.
    public init(path: String) { self.init(path: path, files: SystemFiles()) }

    init(path: String, files: any RestorationFiles) {
        self.path = path
        self.files = files
    }

    private var temporary: String { path + ".new" }
    private var aside: String { path + ".damaged" }
    private var directory: String { AtomicFile.directory(of: path) }

    /// Reads the record. An invalid file is set aside. It never fails: pttd then starts without a channel.
    public func load() -> Loaded {
        // Left by a save that was cut off; the file itself is as it was before.
        try? files.remove(temporary)
        let bytes: [UInt8]
        do throws(RestorationStoreError) {
            guard let contents = try files.read(path, byteCountMax: RestorationRecord.byteCountMax) else {
                return Loaded()
            }
            bytes = contents
        } catch {
            guard case .file(let file) = error, file.isDamage else {
                return Loaded(problem: "\(error); the channel of the last run is not restored")
            }
            return Loaded(problem: setAside(why: file.reason, advice: "join the channel again"))
        }
        do throws(RestorationRecord.Invalid) {
            return Loaded(record: try RestorationRecord(text: bytes))
        } catch {
            let advice =
                if case .otherVersion = error {
                    "join the channel again, or move the file back for the pttd that wrote it"
                } else {
                    "join the channel again"
                }
            return Loaded(problem: setAside(why: "\(error)", advice: advice))
        }
    }

    private func setAside(why: String, advice: String) -> String {
        do throws(RestorationStoreError) {
            try files.rename(path, to: aside)
            try files.synchronize(directory: directory)
            return "\(path) is not used: \(why). It was set aside as \(aside); \(advice)"
        } catch {
            return "\(path) is not used: \(why). It could not be set aside (\(error)); remove it, and \(advice)"
        }
    }

    /// Keeps `record`, in place of the one before.
    ///
    /// - Throws: `RestorationStoreError`; then the one before is still there.
    public func save(_ record: RestorationRecord) throws(RestorationStoreError) {
        let bytes = Array(record.text.utf8)
        guard bytes.count <= RestorationRecord.byteCountMax else { throw .tooLarge(byteCount: bytes.count) }
        if seededFault("a-record-is-written-in-place") { return try files.write(bytes, to: path) }
        try files.write(bytes, to: temporary)
        try files.rename(temporary, to: path)
        try files.synchronize(directory: directory)
    }

    /// Forgets the record: the next start has no channel to restore.
    ///
    /// - Throws: `RestorationStoreError`; then it may still be there.
    public func remove() throws(RestorationStoreError) {
        try files.remove(path)
        try files.synchronize(directory: directory)
    }
}

/// Why the restoration record could not be read or kept.
public enum RestorationStoreError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The system refused.
    case file(FileError)
    /// The record is longer than `RestorationRecord.byteCountMax`.
    case tooLarge(byteCount: Int)

    /// Whether another attempt comes to the same.
    public var isFinal: Bool { if case .tooLarge = self { true } else { false } }

    /// What happened and what to do about it.
    public var description: String {
        switch self {
        case .file(let error): error.description
        case .tooLarge(let byteCount):
            "the channel takes \(byteCount) bytes to keep, and at most \(RestorationRecord.byteCountMax) are kept; "
                + "give it a shorter name or a smaller image"
        }
    }
}
