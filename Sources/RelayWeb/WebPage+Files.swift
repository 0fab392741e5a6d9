// The page's files as they are built in.

extension WebPage {
    /// Every file of Page/ by its name.
    static let builtIn: [String: [UInt8]] = [:]
}
