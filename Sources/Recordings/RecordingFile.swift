// One recording that is being written: hidden until it is complete.

import Files
import Glibc

/// A recording that is being written. Its name appears when it is whole; thrown away before, nothing is left of it.
final class RecordingFile: RecordingOutput {
    /// The numbers that are tried for recordings of the same second and talker.
    static let numbersMax = 1_000

    private let folder: String
    private let name: RecordingName
    private let hiddenPath: String
    private var descriptor: Int32
    private(set) var byteCount = 0

    /// Begins a file, which only its user may read.
    init(folder: String, label: RecordingLabel) throws(RecordingError) {
        var number = 1
        while true {
            let name = RecordingName(label, number: number)
            let hidden = folder + "/" + name.hidden
            let descriptor = open(hidden, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0o600)
            if descriptor < 0, errno == EEXIST, number < Self.numbersMax {
                number += 1
                continue
            }
            guard descriptor >= 0 else { throw RecordingError("create", hidden) }
            // Another daemon that starts now must not take it for one that was left behind.
            _ = flock(descriptor, LOCK_EX | LOCK_NB)
            (self.folder, self.name, hiddenPath, self.descriptor) = (folder, name, hidden, descriptor)
            return
        }
    }

    deinit { discard() }

    /// Adds bytes.
    func write(_ bytes: [UInt8]) throws(RecordingError) {
        let code = writeWhole(bytes, to: descriptor)
        guard code == 0 else { throw RecordingError("write", hiddenPath, code: code) }
        byteCount += bytes.count
    }

    /// Waits until what was written is on the disk.
    func synchronize() throws(RecordingError) {
        guard fdatasync(descriptor) == 0 else { throw RecordingError("write", hiddenPath) }
    }

    /// The file is whole: it gets its name.
    func publish() throws(RecordingError) {
        guard descriptor >= 0 else { return }
        try synchronize()
        try Self.reveal(hiddenPath, as: name, in: folder)
        close(descriptor)
        descriptor = -1
    }

    /// Nothing of it is kept.
    func discard() {
        guard descriptor >= 0 else { return }
        unlink(hiddenPath)
        close(descriptor)
        descriptor = -1
    }

    /// Gives a hidden file its name, or, when another has it, one with a number.
    static func reveal(_ hidden: String, as name: RecordingName, in folder: String) throws(RecordingError) {
        var text = name.text
        for number in 2...numbersMax + 1 {
            // A link never replaces what is there, as a renaming would.
            if link(hidden, folder + "/" + text) == 0 {
                unlink(hidden)
                return
            }
            switch errno {
            case EEXIST: text = name.numbered(number)
            case EPERM, EOPNOTSUPP, ENOSYS, EMLINK:
                // A file system without links, such as FAT.
                guard access(folder + "/" + text, F_OK) != 0 else {
                    text = name.numbered(number)
                    continue
                }
                guard Glibc.rename(hidden, folder + "/" + text) == 0 else { throw RecordingError("rename", hidden) }
                return
            default: throw RecordingError("name", folder + "/" + text)
            }
        }
        throw RecordingError("name", folder + "/" + name.text, code: EEXIST)
    }
}
