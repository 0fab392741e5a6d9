// The disk of one machine, with what disks do: they fill up, become read-only, fail, and keep half of what was written.
import Files
import Glibc
import MonotonicTime
import PushToTalkCore

@testable import ChannelService

/// The files of pttd on one machine, for the shipped `RestorationStore`. They outlive pttd.
final class SimulatedDisk: RestorationFiles, @unchecked Sendable {
    /// What is wrong with it.
    enum Trouble: Int, CaseIterable {
        /// It has room for half of what is written.
        case full
        /// Nothing can be changed.
        case readOnly
        /// pttd is killed in the middle of what it writes.
        case torn
        /// What is read of a file is not what was written.
        case rotten
    }

    private let world: World
    private var files: [String: [UInt8]] = [:]
    private(set) var trouble: Trouble?
    private var troubles = 0
    /// A trouble begins or ends.
    var suffers: () -> Void = {}
    /// Kills pttd.
    var kill: () -> Void = {}

    init(_ world: World) { self.world = world }

    /// Which channel is restored.
    var record: RestorationStore { RestorationStore(path: "/state/channel", files: self) }
    /// Which of the configured channels is the one.
    var choice: RestorationStore { RestorationStore(path: "/state/choice", files: self) }

    /// What a start is to find: what the store has kept last, or nothing.
    private(set) var expected: RestorationRecord?

    /// The store has kept this, or removed what there was.
    func kept(_ record: RestorationRecord?) { expected = record }

    // MARK: Trouble

    func suffer(_ trouble: Trouble, for time: Duration) {
        troubles += 1
        let number = troubles
        self.trouble = trouble
        suffers()
        world.after(time) { [self] in
            guard troubles == number else { return }
            suffers()
            self.trouble = nil
        }
        guard trouble == .rotten, var bytes = files["/state/channel"], !bytes.isEmpty else { return }
        // Another bit each time: the same one twice would be as it was.
        bytes[(bytes.count / 2 + troubles) % bytes.count] ^= 1
        files["/state/channel"] = bytes
        // What cannot be read is set aside.
        expected = nil
    }

    private func refuse(_ what: String, _ path: String, code: Int32) throws(RestorationStoreError) -> Never {
        throw .file(FileError(what, path, code: code))
    }

    // MARK: RestorationFiles

    func read(_ path: String, byteCountMax: Int) throws(RestorationStoreError) -> [UInt8]? {
        files[path].map { Array($0.prefix(byteCountMax + 1)) }
    }

    func write(_ bytes: [UInt8], to path: String) throws(RestorationStoreError) {
        switch trouble {
        case .readOnly: try refuse("create", path, code: EROFS)
        case .full:
            files[path] = Array(bytes.prefix(bytes.count / 2))
            try refuse("write", path, code: ENOSPC)
        case .torn:
            files[path] = Array(bytes.prefix(bytes.count / 2))
            kill()
            try refuse("write", path, code: EIO)
        case .rotten, nil: files[path] = bytes
        }
    }

    func rename(_ path: String, to other: String) throws(RestorationStoreError) {
        if trouble == .readOnly { try refuse("replace", other, code: EROFS) }
        files[other] = files.removeValue(forKey: path)
    }

    func remove(_ path: String) throws(RestorationStoreError) {
        if trouble == .readOnly { try refuse("remove", path, code: EROFS) }
        files[path] = nil
    }

    func synchronize(directory: String) throws(RestorationStoreError) {}
}
