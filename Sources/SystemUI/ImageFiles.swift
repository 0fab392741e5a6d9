// Pictures as files for the programs that show them. Nothing is decoded here.
import Glibc
import Logging
import PushToTalkCore
import Reactor

/// Writes pictures below the user's runtime directory, where notification servers and tray hosts of the same user read them.
///
/// Both take a file's name as well as pixels. A file needs no decoder in the process that holds the microphone, for bytes that come from
/// outside, and JPEG works like PNG.
actor ImageFiles {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    private static let directoryPrefix = "pttd-images-"
    private let runtimeDirectory: String?
    private let label: String
    private let countMax: Int
    private let logger: Logger
    private var directory: String?
    /// The least recently used first.
    private var files: [(image: PTImage, path: String)] = []
    private var written = 0

    /// No files yet, and no directory before the first one.
    ///
    /// - Parameters:
    ///   - runtimeDirectory: A private directory that is removed with the session (`XDG_RUNTIME_DIR`); nil: no files
    ///     are written.
    ///   - label: Distinguishes the files of several instances; letters only.
    ///   - countMax: How many pictures are kept at once.
    init(runtimeDirectory: String?, label: String, countMax: Int, loop: EventLoop, logger: Logger) {
        self.runtimeDirectory = runtimeDirectory
        self.label = label
        self.countMax = countMax
        self.loop = loop
        self.logger = logger
    }

    /// Where the picture is; nil when it cannot be had.
    func picture(of image: PTImage) -> Picture? {
        let bytes: [UInt8]
        let suffix: String
        switch image.content {
        case .themedIcon(let name): return .icon(name)
        case .png(let data): (bytes, suffix) = (data, "png")
        case .jpeg(let data): (bytes, suffix) = (data, "jpg")
        }
        if let index = files.firstIndex(where: { $0.image == image }) {
            let file = files.remove(at: index)
            files.append(file)
            return .file(path: file.path)
        }
        do throws(SystemError) {
            if directory == nil { directory = try makeDirectory() }
            guard let directory else { return nil }
            // A new name each time: what shows pictures keeps them by name.
            written += 1
            let path = "\(directory)/\(written).\(suffix)"
            try Self.write(bytes, to: path)
            files.append((image, path))
        } catch {
            logger.warning("cannot write a picture; notifications show none", metadata: ["why": "\(error)"])
            return nil
        }
        while files.count > countMax { unlink(files.removeFirst().path) }
        return files.last.map { .file(path: $0.path) }
    }

    /// Removes the files.
    func removeAll() {
        for file in files { unlink(file.path) }
        files = []
        if let directory { rmdir(directory) }
        directory = nil
    }

    private func makeDirectory() throws(SystemError) -> String? {
        guard let runtimeDirectory, runtimeDirectory.hasPrefix("/") else { return nil }
        removeLeftovers(in: runtimeDirectory)
        let path = "\(runtimeDirectory)/\(Self.directoryPrefix)\(getpid())-\(label)"
        guard mkdir(path, 0o700) == 0 || errno == EEXIST else { throw SystemError("mkdir \(path)") }
        return path
    }

    /// What processes left behind that had no time to tidy up.
    private func removeLeftovers(in runtimeDirectory: String) {
        for name in Self.names(in: runtimeDirectory) where name.hasPrefix(Self.directoryPrefix) {
            let fields = name.dropFirst(Self.directoryPrefix.count).split(separator: "-")
            guard fields.count == 2, let process = pid_t(fields[0]), process > 0 else { continue }
            let isOurs = process == getpid() && fields[1] == label
            guard isOurs || (kill(process, 0) != 0 && errno == ESRCH) else { continue }
            let path = "\(runtimeDirectory)/\(name)"
            for file in Self.names(in: path) { unlink("\(path)/\(file)") }
            rmdir(path)
        }
    }

    private static func names(in path: String) -> [String] {
        guard let stream = opendir(path) else { return [] }
        defer { closedir(stream) }
        var names: [String] = []
        while let entry = readdir(stream) {
            let name = withUnsafePointer(to: &entry.pointee.d_name) { tuple in
                tuple.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
            }
            if name != ".", name != ".." { names.append(name) }
        }
        return names
    }

    private static func write(_ bytes: [UInt8], to path: String) throws(SystemError) {
        let descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { throw SystemError("open \(path)") }
        var offset = 0
        while offset < bytes.count {
            let count = bytes.withUnsafeBytes {
                Glibc.write(descriptor, $0.baseAddress! + offset, bytes.count - offset)
            }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else {
                let error = SystemError("write \(path)")
                close(descriptor)
                unlink(path)
                throw error
            }
            offset += count
        }
        close(descriptor)
    }
}

/// Where a picture is, for another program to load.
enum Picture: Hashable, Sendable {
    /// A file, by its absolute path.
    case file(path: String)
    /// An icon of the user's theme, by its name.
    case icon(String)

    /// As a `file:` URI or a name. Of RFC 3986, "unreserved" and "/" stay as they are.
    var uri: String {
        switch self {
        case .icon(let name): return name
        case .file(let path):
            return path.utf8.reduce(into: "file://") { uri, byte in
                switch byte {
                case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                    UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."),
                    UInt8(ascii: "_"), UInt8(ascii: "~"), UInt8(ascii: "/"):
                    uri.unicodeScalars.append(Unicode.Scalar(byte))
                default:
                    uri += "%"
                    for digit in [byte >> 4, byte & 15] { uri += String(digit, radix: 16, uppercase: true) }
                }
            }
        }
    }

    /// As an `IconName`: a name, or a path, which hosts take as well.
    var iconName: String {
        switch self {
        case .icon(let name): name
        case .file(let path): path
        }
    }
}
