// The main thread of a program whose tasks run on an event loop.

extension EventLoop {
    /// Runs `body` on a new loop that replaces Swift's global executor (see `becomeGlobalExecutor`), and blocks the
    /// caller, a program's main thread, until `body` returns. Call it once, before the first task, and not from an
    /// `async` main, which already uses libdispatch.
    ///
    /// - Parameter name: The name of the loop's thread.
    /// - Throws: `SystemError` when there is no thread for it; what `body` throws.
    public static func runProgram<T: Sendable>(
        named name: String, _ body: @escaping @Sendable (EventLoop) async throws -> T
    ) throws -> T {
        let loop = try EventLoop(name: name)
        loop.becomeGlobalExecutor()
        let result = BlockingResult<Result<T, any Error>>()
        Task {
            do {
                result.fulfil(.success(try await body(loop)))
            } catch {
                result.fulfil(.failure(error))
            }
        }
        return try result.wait().get()
    }
}
