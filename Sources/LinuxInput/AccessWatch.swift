// Reports changes of the permissions of a device node: the right to open it may come with the user's session, long
// after the node appeared.
import CLinux
import Glibc
import Reactor

/// Reports which files of some folders have new permissions, by inotify(7). It is confined to its loop's thread.
///
/// The folder is watched, as a watch on a file needs the right to read it.
final class AccessWatch {
    private let descriptor: Int32
    private var folders: [Int32: String] = [:]
    private var watch: EventLoop.Watch?

    /// - Parameter handler: Called with the path of a file whose permissions changed; nil: changes were missed, and each folder has to be
    ///   added again.
    init(loop: EventLoop, _ handler: @escaping (String?) -> Void) throws(SystemError) {
        descriptor = inotify_init1(Int32(IN_NONBLOCK | IN_CLOEXEC))
        guard descriptor >= 0 else { throw SystemError("inotify_init1") }
        do throws(SystemError) {
            watch = try loop.watch(descriptor, for: .readable) { [unowned self] _ in read(handler) }
        } catch {
            close(descriptor)
            throw error
        }
    }

    /// Watches the folder that a node is in. False when it is watched already.
    @discardableResult
    func add(folderOf node: String) throws(SystemError) -> Bool {
        guard let slash = node.lastIndex(of: "/") else { return false }
        let folder = String(node[..<slash])
        guard !folders.values.contains(folder) else { return false }
        let number = inotify_add_watch(descriptor, folder, UInt32(IN_ATTRIB))
        guard number >= 0 else { throw SystemError("inotify_add_watch") }
        folders[number] = folder
        return true
    }

    /// Ends it.
    func shut() {
        guard let watch else { return }
        watch.cancel()
        self.watch = nil
        close(descriptor)
    }

    private func read(_ handler: (String?) -> Void) {
        var bytes = [UInt8](repeating: 0, count: 4096)
        let count = Glibc.read(descriptor, &bytes, bytes.count)
        let header = MemoryLayout<inotify_event>.size
        var paths: Set<String> = []
        var hasMissed = false
        bytes.withUnsafeBytes { buffer in
            var offset = 0
            while offset + header <= count {
                let event = buffer.loadUnaligned(fromByteOffset: offset, as: inotify_event.self)
                let end = offset + header + Int(event.len)
                guard end <= count else { break }
                let name = buffer[(offset + header)..<end].prefix { $0 != 0 }
                offset = end
                if event.mask & UInt32(IN_Q_OVERFLOW) != 0 {
                    // The news that a folder is gone may be among what the kernel has dropped.
                    folders = [:]
                    hasMissed = true
                } else if event.mask & UInt32(IN_IGNORED) != 0 {
                    // The folder is gone, as /dev/input with its last device; a new one has to be watched anew.
                    folders[event.wd] = nil
                } else if let folder = folders[event.wd] {
                    paths.insert("\(folder)/\(String(decoding: name, as: UTF8.self))")
                }
            }
        }
        for path in paths.sorted() { handler(path) }
        if hasMissed { handler(nil) }
    }
}
