// The page's files as they are built in.
import CWebPage

extension WebPage {
    /// Every file of Page/ by its name.
    static let builtIn: [String: [UInt8]] = (0..<ptt_page_file_count()).reduce(into: [:]) { files, number in
        let file = ptt_page_file_at(number)
        guard let name = file.name else { return }
        files[String(cString: name)] = Array(UnsafeBufferPointer(start: file.bytes, count: file.count))
    }
}
